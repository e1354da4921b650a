"""Signals to a supervisor and to a runtime at any moment end the job as one that was asked to end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from local_jobs import Run, folder, wait_for_end, wait_until

from cloudtrain import Job, JobStatus

WAITS = """
    import time
    print("ready", flush=True)
    time.sleep(600)
"""


def supervisor(job: Job) -> int | None:
    return folder(job).read_record().pid


def runtime(job: Job) -> int:
    """The process of the only host, as soon as there is one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        pid = supervisor(job)
        if pid and (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            return int(children[0])
    raise AssertionError("waited 120 s for a runtime")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_runtime_in_its_first_moments(run: Run, number: signal.Signals) -> None:
    for _ in range(3):
        job = run(WAITS, wait=False, platform="local", platform_options={"max_preemptions": 0})
        os.kill(runtime(job), number)
        wait_for_end(job)
        assert (job.status, job.describe().exit_code) == (JobStatus.INTERRUPTED, 143), job.failure


def test_a_closed_session(run: Run) -> None:
    job = run(WAITS, wait=False)
    wait_until(lambda: "ready" in job.logs(), "the script")
    os.kill(supervisor(job) or 0, signal.SIGHUP)
    wait_for_end(job)
    found = (job.status, job.describe().reason, job.describe().exit_code, job.failure)
    assert found == (
        JobStatus.INTERRUPTED,
        "ended by SIGHUP: its terminal or session was closed, for example",
        129,
        None,
    )
