"""The labels and names of a job's containers and network in an engine."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

from cloudtrain._system.users import user_id

JOB = "cloudtrain.job"
OWNER = "cloudtrain.owner"
"""The user's ID."""
MACHINE = "cloudtrain.machine"
"""The name of the machine, because several machines can use one engine."""
FOLDER = "cloudtrain.folder"
"""The job's folder, which the job's supervisor locks while it is alive."""


def own_labels() -> dict[str, str]:
    """Labels of every container and network that this user creates from this machine."""
    return {OWNER: str(user_id()), MACHINE: socket.gethostname()}


def job_labels(job_name: str, folder: Path) -> dict[str, str]:
    return {JOB: job_name, FOLDER: str(folder), **own_labels()}


def network_name(job_name: str, folder: Path) -> str:
    """A name that is unique in an engine, even if another user's job has the same name."""
    return f"cloudtrain-{job_name}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
