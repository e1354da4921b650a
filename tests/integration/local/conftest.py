"""Starts real jobs on the local platform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_jobs import Run, wait_for_end, write

from cloudtrain import Estimator, Job


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """``run(script, **arguments)`` starts a job and waits for its end; ``wait=False`` does not wait.

    ``script`` is the text of ``train.py``, or a folder. Jobs that still run at the end are stopped.
    """
    jobs: list[Job] = []

    def start(
        script: str | Path,
        inputs: Any = None,
        *,
        wait: bool = True,
        name: str = "train.py",
        job_name: str | None = None,
        **arguments: Any,
    ) -> Job:
        folder = script if isinstance(script, Path) else write(tmp_path / f"src-{len(jobs)}", name, script)
        arguments.setdefault("source_dir", str(folder))
        job = Estimator(name, **arguments).fit(inputs, wait=False, job_name=job_name)
        jobs.append(job)
        if wait:
            wait_for_end(job)
        return job

    yield start
    for job in jobs:
        if not job.status.is_final:
            job.stop()
    for job in jobs:
        wait_for_end(job)
