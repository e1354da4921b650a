"""Commands that look at a job on a real Slurm change nothing there, and doubt the errors of ``squeue``."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import number_of, submit, wait_for_end, wait_for_line, wait_until

from cloudtrain import JobStatus
from cloudtrain.platforms.slurm import SlurmPlatform, queue, squeue

WAITS = """
import os, sys, time
from cloudtrain import environment
if os.environ["CLOUDTRAIN_ATTEMPT"] == "0":
    print("waiting", flush=True)
    while True:
        environment.exit_if_preempted()
        time.sleep(0.05)
print("resumed", flush=True)
"""
FAST = {"poll_seconds": 1}


@pytest.fixture
def in_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``in_front(lines, name, ...)``: those commands of Slurm run these lines first. Returns their folder."""
    folder = tmp_path / "in-front"
    folder.mkdir()

    def put(lines: str, *names: str) -> Path:
        for name in names:
            program = folder / name
            program.write_text(
                f'#!/bin/sh\n{lines.format(folder=folder, name=name)}\nexec {shutil.which(name)} "$@"\n'
            )
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return folder

    return put


@pytest.mark.parametrize(
    "answer",
    [
        'echo "squeue: error: Invalid user: $(id -u)" >&2',
        'echo "slurm_load_jobs error: Unexpected message received" >&2',
        ":",
    ],
    ids=["invalid-user", "error", "nothing"],
)
def test_an_error_of_squeue_ends_no_job(
    answer: str, slurm: SlurmCluster, tmp_path: Path, in_front: Callable[..., Path]
) -> None:
    lines = f"[ -e {{folder}}/broken ] && {{{{ echo call >> {{folder}}/calls; {answer}; exit 0; }}}}"
    folder = in_front(lines, "squeue")
    calls = folder / "calls"
    job = submit(tmp_path, WAITS, "lives", nodes=1, platform_options=FAST)
    wait_for_line(job, "waiting")
    (folder / "broken").touch()
    wait_until(lambda: job.describe() and calls.exists() and calls.read_text().count("call") > 1, "two looks")
    assert job.status == JobStatus.RUNNING
    assert [one.status for one in SlurmPlatform().list()] == [JobStatus.RUNNING]
    assert slurm.state(number_of(job)) == "RUNNING"
    job.stop()
    described = wait_for_end(job).describe()
    assert (described.status, described.reason) == (JobStatus.STOPPED, "stopped by the user")
    slurm.wait(number_of(job))


def test_a_stop_reaches_a_job_that_was_taken_for_dead(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(tmp_path, WAITS, "taken-for-dead", nodes=1, platform_options=FAST)
    wait_for_line(job, "waiting")
    state = Path(os.environ["CLOUDTRAIN_HOME"], "jobs", "slurm", job.name, "state.json")
    state.write_text(state.read_text().replace('"Running"', '"Failed"'))
    job.stop()
    slurm.wait(number_of(job))
    assert wait_for_end(job).status == JobStatus.STOPPED


def test_a_squeue_that_hangs_keeps_no_stop(
    slurm: SlurmCluster, tmp_path: Path, in_front: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = in_front("[ -e {folder}/hangs ] && exec sleep 600", "squeue")
    job = submit(tmp_path, WAITS, "stops", nodes=1, platform_options=FAST)
    wait_for_line(job, "waiting")
    monkeypatch.setattr(queue, "CALL_SECONDS", 2.0)
    monkeypatch.setattr(squeue, "OWN_SECONDS", 2.0)
    (folder / "hangs").touch()
    job.stop()
    slurm.wait(number_of(job))
    (folder / "hangs").unlink()
    assert wait_for_end(job).status == JobStatus.STOPPED


def test_only_a_client_that_waits_submits_a_job_again(
    slurm: SlurmCluster, tmp_path: Path, in_front: Callable[..., Path]
) -> None:
    """The nodes have no command that does."""
    nodes = tmp_path / "commands"
    nodes.mkdir()
    for name in ("srun", "env", "head", "sha256sum"):
        (nodes / name).symlink_to(shutil.which(name) or name)
    options = {**FAST, "prologue": [f"export PATH={nodes}"], "python": sys.executable}
    calls = in_front('echo "{name} $*" >> {folder}/calls', "sbatch", "scontrol") / "calls"
    jobs = [
        submit(tmp_path, WAITS, name, nodes=1, platform_options=options) for name in ("goes-on", "is-stopped")
    ]
    assert calls.read_text().count("sbatch") == 2
    calls.unlink()
    for job in jobs:
        wait_for_line(job, "waiting")
        job.preempt()
        slurm.wait(number_of(job))
        wait_until(lambda job=job: "cloudtrain wait" in job.describe().reason, "the end of the submission")
        platform = job.platform
        assert [one.status for one in platform.list() if one.name == job.name] == [JobStatus.PENDING]
        assert "To submit the job again, run: cloudtrain wait" in job.logs()
        assert platform.states(job.name)  # type: ignore[attr-defined]
        assert not job.metrics
        assert platform.request(job.name)  # type: ignore[attr-defined]
        for lines in (platform.logs(job.name, follow=True), platform.events(job.name, follow=True)):  # type: ignore[attr-defined]
            assert list(itertools.islice(lines, 2))
    job, other = jobs
    other.stop()
    assert other.status == JobStatus.STOPPED
    time.sleep(1)
    made = calls.read_text() if calls.exists() else ""
    assert "sbatch" not in made
    assert "requeue" not in made
    job.wait()
    assert "scontrol requeue" in calls.read_text()
    assert job.status == JobStatus.COMPLETED
    assert "resumed" in job.logs()
