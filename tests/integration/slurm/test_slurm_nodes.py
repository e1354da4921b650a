"""Nodes that fail, limits that end a job, and a controller that is away: Slurm explains what our own record cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf
from slurm_jobs import number_of, submit, wait_for_end, wait_for_line

from cloudtrain import FailureClass, JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import JobDescription

SLEEPS = """
import time
print("sleeping", flush=True)
time.sleep(600)
"""
ONCE = {"max_preemptions": 0}
NEVER = {"requeue": "never"}


def test_a_job_that_hangs_is_ended_if_asked(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(tmp_path, SLEEPS, "silent", hang_after=4, on_hang="stop", max_retry_attempts=3)
    described = wait_for_end(job).describe()
    assert (described.status, described.attempt) == (JobStatus.FAILED, 0)
    assert described.failure and described.failure.failure_class == FailureClass.HANG
    assert described.failure.message.endswith("ranks 0-1 are in <module> at train.py:4")
    assert "rank 0:" in described.failure.stacks and "rank 1:" in described.failure.stacks


def test_a_full_queue(slurm: SlurmCluster, tmp_path: Path) -> None:
    first = submit(tmp_path, SLEEPS, "first", platform_options={"exclusive": True})
    second = submit(tmp_path, "print('at last')", "second", nodes=1)
    wait_for_line(first, "sleeping", 2)
    described = second.describe()
    assert described.status == JobStatus.PENDING
    assert "are in use" in described.reason or "jobs of a higher priority" in described.reason
    first.stop()
    wait_for_end(second)
    assert second.status == JobStatus.COMPLETED
    assert "at last" in second.logs()
    described = wait_for_end(first).describe()
    assert (described.status, described.reason) == (JobStatus.STOPPED, "stopped by the user")


@pytest.mark.soak
def test_slurmctld_is_away_while_we_wait(slurm: SlurmCluster, tmp_path: Path) -> None:
    """The job runs and ends without it: its own record says how."""
    go = tmp_path / "go"
    script = f"""
    import os, time
    print("waiting", flush=True)
    while not os.path.exists({str(go)!r}):
        time.sleep(0.1)
    print("done", flush=True)
    """
    job = submit(tmp_path, script, "waits")
    wait_for_line(job, "waiting", 2)
    command = ["cloudtrain", "wait", "waits", "--platform", "slurm"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    slurm.stop_controller()
    described = job.describe()
    assert described.status == JobStatus.RUNNING
    go.touch()
    output, _ = waiting.communicate(timeout=90)
    assert waiting.returncode == 0, output
    assert job.status == JobStatus.COMPLETED
    assert job.logs().count("done") == 2


def test_a_node_is_set_down(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(tmp_path, SLEEPS, "downed", platform_options=ONCE)
    wait_for_line(job, "sleeping", 2)
    slurm.set_down("127.0.0.3")
    check(wait_for_end(job).describe(), FailureClass.HOST_LOST, "ended by the loss of a host")


@pytest.mark.soak
def test_what_slurm_notices_late(slurm3: SlurmCluster, tmp_path: Path) -> None:
    """Slurm looks for nodes that do not answer, and for jobs over their limit, every half minute."""
    pair = {"nodelist": ["127.0.0.2", "127.0.0.3"]}
    lost = submit(tmp_path, SLEEPS, "lost", platform_options={**ONCE, **pair})
    late = submit(tmp_path, SLEEPS, "late", nodes=1, platform_options={**NEVER, "nodelist": "127.0.0.4"})
    wait_for_line(lost, "sleeping", 2)
    wait_for_line(late, "sleeping")
    slurm3.kill_node("127.0.0.3")
    slurm3.expire(number_of(late))
    check(wait_for_end(late).describe(), FailureClass.TIME_LIMIT, "ended by the scheduler's time limit")
    assert late.failure
    assert late.failure.message.endswith("and not restarted: platform_options.requeue is never")
    check(wait_for_end(lost).describe(), FailureClass.HOST_LOST, "ended by the loss of a host")


def check(described: JobDescription, kind: FailureClass, reason: str) -> None:
    assert (described.status, described.reason) == (JobStatus.INTERRUPTED, reason)
    assert described.failure
    assert described.failure.failure_class == kind
    assert "resumes from its last checkpoint" in described.failure.hint


def test_processors_and_memory_of_a_node_follow_its_ranks(slurm_of: SlurmOf, tmp_path: Path) -> None:
    """The memory, too, where the cluster grants memory for each processor."""
    slurm = slurm_of(Configuration(lines=("SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=100")))
    four = {"processes": {"processes_per_host": 4}}
    job = submit(tmp_path, "print('ran')", "four", distribution=four)
    assert wait_for_end(job).status == JobStatus.COMPLETED
    shown = slurm("scontrol", "show", "job", str(number_of(job)))
    assert "NumCPUs=8 " in shown
    assert "mem=800M" in shown
    assert job.describe().details["each host"] == "4 CPUs, 400 MB of memory"
    nine = {"processes": {"processes_per_host": 9}}
    with pytest.raises(PlatformError, match="CPU count per node can not be satisfied") as caught:
        submit(tmp_path, "print('ran')", "nine", distribution=nine)
    assert "platform_options.cpus_per_task" in (caught.value.hint or "")
