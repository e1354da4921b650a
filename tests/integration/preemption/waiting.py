"""Helpers that wait, for tests of preemptions."""

from __future__ import annotations

import time
from collections.abc import Callable

from cloudtrain import Job


def wait_until(condition: Callable[[], object], job: Job, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{job.describe()}\n{job.logs()}"
        time.sleep(0.05)


def wait_for_line(job: Job, text: str) -> None:
    wait_until(lambda: text in job.logs(), job)


def wait_for_end(job: Job, timeout: float = 120) -> str:
    """The output of the job so far."""
    wait_until(lambda: job.status.is_final, job, timeout)
    return job.logs()
