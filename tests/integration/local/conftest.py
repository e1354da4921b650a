"""Starts real jobs on the local platform."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_jobs import Run, folder, wait_for_end, write

from cloudtrain import Estimator, Job
from cloudtrain.platforms.supervised.leftovers import ENVIRONMENTS
from cloudtrain.storage import state_home


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
        source = script if isinstance(script, Path) else write(tmp_path / f"src-{len(jobs)}", name, script)
        arguments.setdefault("source_dir", str(source))
        job = Estimator(name, **arguments).fit(inputs, wait=False, job_name=job_name)
        jobs.append(job)
        if wait:
            wait_for_end(job)
        return job

    yield start
    kept = [job for job in jobs if folder(job).path.exists()]
    for job in kept:
        if not job.status.is_final:
            job.stop()
    for job in kept:
        wait_for_end(job)


@pytest.fixture(scope="session")
def _kept_environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def shared_environments(_kept_environments: Path) -> None:
    """Tests whose jobs have the same requirements share the environment, which takes 1.5 s of CPU time to make."""
    (state_home() / ENVIRONMENTS).symlink_to(_kept_environments)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[None]:
    """Stores jobs on a file system of 4 MB."""
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], check=False).returncode:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "a small file system cannot be mounted here"
        pytest.skip("mounting a file system needs root")
    home = Path(os.environ["CLOUDTRAIN_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    (home / "jobs").symlink_to(small)
    yield
    subprocess.run(["umount", "--lazy", small], check=True)  # a supervisor may still be leaving
