"""Helpers for tests of jobs in containers."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine_daemon import IMAGE, Engine

from cloudtrain import Estimator, Job
from cloudtrain.runtime.supervisor.folder import JobFolder

TIMEOUT = 120.0


class Jobs:
    """Starts jobs in containers of an engine, and stops those that still run at the end."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self._folder = folder
        self._jobs: list[Job] = []

    def start(
        self,
        script: str | None,
        inputs: Any = None,
        *,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> Job:
        """Start a job that runs ``script``, the text of a script; None runs the image's own program."""
        number = len(self._jobs)
        arguments = {"image_uri": IMAGE, "platform": "container", **arguments}
        if script is not None:
            source = self._folder / f"source-{number}"
            source.mkdir()
            (source / "train.py").write_text(textwrap.dedent(script))
            arguments.update(entry_point="train.py", source_dir=str(source))
        platform_options = {"engine": self.engine.url, **(options or {})}
        estimator = Estimator(platform_options=platform_options, base_job_name=f"job-{number}", **arguments)
        job = estimator.fit(inputs, wait=False)
        self._jobs.append(job)
        return job

    def end(self) -> None:
        for job in self._jobs:
            if not job.status.is_final:
                job.stop()
        for job in self._jobs:
            wait_for_end(job)


@contextmanager
def jobs_in(engine: Engine, folder: Path) -> Iterator[Jobs]:
    jobs = Jobs(engine, folder)
    try:
        yield jobs
    finally:
        jobs.end()


def wait_for_end(job: Job) -> Job:
    """Wait until the job has ended, in success or failure."""
    wait_until(lambda: job.status.is_final, f"the end of {job.name}")
    return job


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"waited {TIMEOUT} s for {what}"
        time.sleep(0.05)


def folder_of(job: Job) -> JobFolder:
    return JobFolder.of("container", job.name)
