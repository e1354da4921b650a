"""kill -9 of a runtime at random moments of its start."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from killed_starts import kill_starts
from local_jobs import DAEMONS, Run, folder, live_processes, wait_for_end, wait_until

from cloudtrain.contract import JobStatus

ROUNDS = {"processes": 4, "torch_distributed": 2, "mpi": 2}
ROUNDS_IN_SOAK = {"processes": 200, "torch_distributed": 60, "mpi": 100}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("launcher", ROUNDS)
def test_the_next_attempt_of_a_killed_start_is_healthy(launcher: str, run: Run) -> None:
    kill_starts(run, launcher, ROUNDS[launcher])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("launcher", ROUNDS)
def test_the_next_attempt_of_a_killed_start_is_healthy_at_length(launcher: str, run: Run) -> None:
    kill_starts(run, launcher, ROUNDS_IN_SOAK[launcher], seed=2)


def test_nothing_survives_a_runtime_that_is_killed(run: Run) -> None:
    """Neither a rank, nor a daemon in another session."""
    job = run(DAEMONS + "print('ready', flush=True)\ntime.sleep(600)", wait=False)
    wait_until(lambda: "ready" in job.logs(), "the script")
    supervisor = folder(job).read_record().pid
    [runtime] = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    os.kill(int(runtime), signal.SIGKILL)
    wait_for_end(job)
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert job.failure.failure_class == "host-lost"
    wait_until(lambda: not live_processes(job), "the end of the daemons")
