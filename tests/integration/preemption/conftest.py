"""Starts real jobs on the local platform, and stops them at the end."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for_end

from cloudtrain import Estimator, Job

sys.path.append(str(Path(__file__).parents[1] / "distributed"))

Submit = Callable[..., Job]


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Submit]:
    """``submit(script, **arguments)`` starts a job and returns immediately."""
    jobs: list[Job] = []

    def start(script: str, **arguments: Any) -> Job:
        path = tmp_path / f"source-{len(jobs)}" / "train.py"
        path.parent.mkdir()
        path.write_text(textwrap.dedent(script))
        jobs.append(Estimator(str(path), **arguments).fit(wait=False))
        return jobs[-1]

    yield start
    for job in jobs:
        job.stop()
    for job in jobs:
        wait_for_end(job)
