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
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.checkpoint.memory.files import VARIABLE
from cloudtrain.contract import FailureClass, FailureReport, Paths
from cloudtrain.runtime import commit_process, descendants
from cloudtrain.runtime.checkpoint_memory import CheckpointMemory
from cloudtrain.runtime.outcome import HostOutcome
from cloudtrain.runtime.supervisor.left_memory import save_left_memory

READS = """
import os, time
data = os.open("{folder}", os.O_PATH)
print("reads", flush=True)
os.stat("data", dir_fd=data)
"""

SYNCS = """
import os, signal, time
sync = os.fsync
def slow(file):
    if {pause}:  # the runtime, which is continued first, and this process
        os.fsync = sync
        both = os.getppid(), os.getpid()
        if os.fork() == 0:
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for process in both:
                    os.kill(process, number)
                time.sleep(6)
            os._exit(0)
    elif os.fstat(file).st_size >= 1_000_000:
        time.sleep(6)
    sync(file)
os.fsync = slow
"""
COMMITS = """
import os, sys
from cloudtrain.runtime import commit_process as process
process.SILENT_SECONDS, process.SLOW = 4.0, float(sys.argv[2])
request = process.Request(sys.argv[1], None, "memory")
environ = {**os.environ, "PYTHONPATH": sys.argv[3]}
print([process.commit_in_process(request, environ, lambda _is_good, sentence: print(sentence), float("inf"))])
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
        "descendants.KILLED_SECONDS = 5.0\n"
        "held = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "held.stdout.readline()\n"
        "wait = f'/proc/{held.pid}/wchan'\n"
        "while open(wait).read() != 'request_wait_answer': pass\n"
        "other = subprocess.Popen(['sleep', '600'])\n"
        "print(descendants.end_descendants() == [held.pid], flush=True)\n"
        "descendants.KILLED_SECONDS = 1e6  # not again for a process that was killed, and did not end\n"
        "print(descendants.end_descendants() == [held.pid])\n"
    )
    command = [sys.executable, "-c", program, READS.format(folder=dead)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "True\n"
            assert process.stdout.readline() == "True\n"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert "process 12: the kernel" in descendants.show_left([12])


def test_checkpoints_on_a_dead_mount_are_given_up_and_put_on_disk(
    dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_process, "SILENT_SECONDS", 2.0)
    paths = Paths(tmp_path / "host")
    paths.make()
    variables = {VARIABLE: str(tmp_path), "CLOUDTRAIN_RUN_ID": "job", "CLOUDTRAIN_ATTEMPT": "0"}
    memory, said = CheckpointMemory(paths, 0, variables), list[str]()
    monkeypatch.setenv(VARIABLE, memory.variables[VARIABLE])
    assert Checkpointer(dead).save(1, {"weights": [1.0]}, to="memory")
    killed = FailureReport(FailureClass.KILLED, "", exit_code=137, signal=9)
    assert not memory.may_stay(killed)
    memory.end(HostOutcome(JobStatus.FAILED, killed), said.append)
    assert said == [
        f"what is in the memory of this host cannot be committed: {dead.as_uri()} does not answer"
    ]
    save_left_memory([paths], "job", os.environ, 30, print, said.append)
    unsaved = paths.base / "unsaved" / "1"
    assert said[1] == (
        f"step 1 is in the memory of this host, and cannot be committed: {dead.as_uri()} does not answer. Step 1 is on "
        f"disk: copy what is in {unsaved} to {dead.as_uri()} to resume from it"
    )
    assert Checkpointer(unsaved).steps() == [1]


@pytest.mark.parametrize("what", ["slow", "paused"])
def test_a_commit_to_a_slow_mount_and_one_that_is_paused_are_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A mount of object storage uploads a file while it is synced. Slurm pauses all processes of a job."""
    paths = Paths(tmp_path / "host")
    paths.make()
    memory = CheckpointMemory(paths, 0, {VARIABLE: str(tmp_path)})
    monkeypatch.setenv(VARIABLE, memory.variables[VARIABLE])
    assert Checkpointer(tmp_path / "checkpoints").save(1, {"weights": b"0" * 1_000_000}, to="memory")
    (tmp_path / "sitecustomize.py").write_text(SYNCS.format(pause=what == "paused"))
    arguments = [str(memory.folder), "1" if what == "slow" else "1e12", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", COMMITS, *arguments], capture_output=True, text=True, check=True
    )
    where = (tmp_path / "checkpoints").as_uri()
    assert done.stdout == f"checkpoint 1, which was in memory, is committed in {where}\n['']\n"


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
    assert [outcome["source"] for outcome in events(job, "outcome")] == ["algo-1"], (
        "its runtime ended by itself"
    )
