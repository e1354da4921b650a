"""Helpers for tests of jobs on a cluster. Their ranks are plain Python, because torch takes a second to import."""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slurm_cluster import SlurmCluster

from cloudtrain import Estimator, Job

POLL = {"poll_seconds": 1}
"""An end is seen within a second; by default, an answer of the queue counts for ten."""
ONE_RANK = {"processes": {"processes_per_host": 1}}
"""On every node."""


def submit(folder: Path, script: str, job_name: str, *, nodes: int = 2, **arguments: Any) -> Job:
    """Submit a job with the text of ``train.py``, and do not wait for it."""
    source = folder / f"source-{job_name}"
    source.mkdir()
    (source / "train.py").write_text(textwrap.dedent(script))
    options = {**POLL, **arguments.pop("platform_options", {})}
    values = {"platform": "slurm", "distribution": ONE_RANK, "platform_options": options, **arguments}
    return Estimator("train.py", source_dir=str(source), instance_count=nodes, **values).fit(
        job_name=job_name, wait=False
    )


def job_folder(job: Job) -> Path:
    """The folder of a job, which the nodes share."""
    return Path(os.environ["CLOUDTRAIN_HOME"], "jobs", "slurm", job.name)


def number_of(job: Job) -> int:
    """Slurm's number of the last submission."""
    submissions = json.loads((job_folder(job) / "batch.json").read_text())["submissions"]
    return int(submissions[-1]["number"])


def wait_for_line(job: Job, text: str, count: int = 1, patience: float = 120) -> None:
    """Wait until ``count`` lines of the job's log contain ``text``."""
    wait_until(lambda: job.logs().count(text) >= count, f"{count} x {text!r} in the log", patience, job.logs)


def wait_for_end(job: Job, patience: float = 180) -> Job:
    """Wait until the job has ended, successful or not."""
    wait_until(lambda: job.status.is_final, f"the end of {job.name}", patience, job.logs)
    return job


def wait_until(
    condition: Callable[[], object], what: str, patience: float = 120, more: Callable[[], str] = lambda: ""
) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience} s: {what}\n{more()}"
        time.sleep(0.2)


def queue_is_empty(cluster: SlurmCluster) -> bool:
    return not cluster("squeue", "-h")
