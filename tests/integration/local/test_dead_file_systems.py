"""Ranks that wait for a file system that does not answer: they are named, and the job can be stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dead_mounts import dead_mount
from local_jobs import Run, events, wait_for_end, wait_until

from cloudtrain import JobStatus
from cloudtrain.runtime import descendants

READS = """
import os, time
data = os.open("{folder}", os.O_PATH)
print("reads", flush=True)
os.stat("data", dir_fd=data)
"""


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "dead"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(dead_mount(folder))
        except OSError as error:
            assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"FUSE cannot be mounted here: {error}"
            pytest.skip(f"mounting FUSE needs root and /dev/fuse: {error}")
        yield folder


def test_the_end_does_not_wait_for_a_process_that_the_kernel_holds(dead: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "from cloudtrain.runtime import descendants\n"
        "descendants.KILLED_SECONDS = 0.5\n"
        "held = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "held.stdout.readline()\n"
        "wait = f'/proc/{held.pid}/wchan'\n"
        "while open(wait).read() != 'request_wait_answer': pass\n"
        "other = subprocess.Popen(['sleep', '600'])\n"
        "print(descendants.end_descendants() == [held.pid])\n"
    )
    command = [sys.executable, "-c", program, READS.format(folder=dead)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "True\n"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert "process 12: the kernel" in descendants.show_left([12])


@pytest.mark.soak
def test_a_job_is_stopped_while_a_rank_reads_from_a_dead_mount(run: Run, dead: Path) -> None:
    job = run(READS.format(folder=dead), wait=False, hang_after=5, stop_grace=1)
    wait_until(lambda: events(job, "hanging"), "the hang")
    [hang] = events(job, "hanging")
    begins = "rank 0 on algo-1: sleeps uninterruptibly in the kernel (request_wait_answer)"
    assert hang["message"] == f"{begins}, with {dead} open, on a network file system"
    job.stop()
    wait_for_end(job)
    assert job.status == JobStatus.STOPPED
    [*_, last] = events(job, "warning")
    assert "SIGKILL has not ended process" in last["message"]
