"""Jobs on a real Slurm that others end: a user with ``scancel``, a signal, a limit on memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf
from slurm_jobs import number_of, submit, wait_for_end, wait_for_line

from cloudtrain import FailureClass, JobStatus
from cloudtrain.errors import TrainingFailed

MEMORY = (
    "JobAcctGatherType=jobacct_gather/linux",
    "JobAcctGatherFrequency=1",
    "JobAcctGatherParams=OverMemoryKill",
    "SelectTypeParameters=CR_Core_Memory",
)
"""Slurm kills a step that uses too much memory. With control groups, which need more rights, the kernel does."""
WAITS = """
import time
print("waiting", flush=True)
time.sleep(600)
"""
NOTICES = """
import signal, time
signals = []
signal.signal(signal.SIGUSR1, lambda *_: signals.append(1))
print("waiting", flush=True)
while not signals:
    time.sleep(0.05)
print("noticed", flush=True)
"""
EATS = """
import os, time
taken = bytearray((900 << 20) if os.environ["RANK"] == "1" else 1)
time.sleep(600)
"""


def test_what_others_do_has_its_name(slurm_of: SlurmOf, tmp_path: Path) -> None:
    slurm = slurm_of(Configuration(accounting=True, lines=MEMORY, name="outside"))
    options = {"poll_seconds": 1, "mem": "500M"}
    interrupted = submit(tmp_path, WAITS, "interrupted", platform_options=options)
    cancelled = submit(tmp_path, WAITS, "cancelled", nodes=1, platform_options=options)
    eats = submit(tmp_path, EATS, "eats", platform_options=options)
    wait_for_line(interrupted, "waiting", 2)
    wait_for_line(cancelled, "waiting")
    slurm("scancel", "--signal=INT", str(number_of(interrupted)))
    slurm("scancel", str(number_of(cancelled)))

    with pytest.warns(UserWarning, match="cancelled the job in Slurm"):
        described = cancelled.wait(90).describe()
    assert (described.status, described.failure) == (JobStatus.STOPPED, None)
    assert described.reason.startswith(("an administrator (root) ", "user "))
    described = wait_for_end(interrupted).describe()
    assert (described.status, described.failure) == (JobStatus.INTERRUPTED, None)
    assert described.reason.startswith("interrupted by SIGINT")
    assert "cloudtrain/platforms" not in interrupted.logs(), "a traceback of cloudtrain"
    with pytest.raises(TrainingFailed):
        eats.wait(90)
    failure = eats.describe().failure
    assert failure
    assert (failure.failure_class, failure.host) == (FailureClass.OUT_OF_MEMORY, "127.0.0.3")
    assert "exceeded memory limit" in failure.message


def test_a_notice_to_all_processes_reaches_the_ranks(slurm: SlurmCluster, tmp_path: Path) -> None:
    """As ``scancel --signal=USR1`` sends it, and sbatch with ``--signal=USR1@60``."""
    job = submit(tmp_path, NOTICES, "noticed", platform_options={"poll_seconds": 1})
    wait_for_line(job, "waiting", 2)
    slurm("scancel", "--signal=USR1", str(number_of(job)))
    wait_for_line(job, "noticed", 2)
    assert wait_for_end(job).status == JobStatus.COMPLETED


def test_a_hangup_of_all_processes_has_its_name(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(tmp_path, WAITS, "hung-up", platform_options={"poll_seconds": 1})
    wait_for_line(job, "waiting", 2)
    slurm("scancel", "--signal=HUP", str(number_of(job)))
    described = wait_for_end(job).describe()
    assert (described.status, described.exit_code) == (JobStatus.INTERRUPTED, 129)
    assert described.reason.startswith("ended by SIGHUP")


def test_a_step_that_someone_cancels_is_not_a_lost_host(slurm: SlurmCluster, tmp_path: Path) -> None:
    job = submit(tmp_path, WAITS, "step-cancelled", platform_options={"poll_seconds": 1})
    wait_for_line(job, "waiting", 2)
    slurm("scancel", f"{number_of(job)}.0")
    failure = wait_for_end(job).describe().failure
    assert failure and failure.failure_class == FailureClass.KILLED
    assert "someone cancelled the step of the job" in failure.message
