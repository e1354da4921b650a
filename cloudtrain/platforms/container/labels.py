"""Labels and names by which a job's containers and network are known in an engine."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

JOB = "cloudtrain.job"
OWNER = "cloudtrain.owner"
"""The number of the user."""
MACHINE = "cloudtrain.machine"
"""The name of the machine: engines can be reached from several."""
FOLDER = "cloudtrain.folder"
"""The job's folder: as long as its supervisor lives, it holds the lock there."""


def own_labels() -> dict[str, str]:
    """What everything has that this user makes on this machine."""
    return {OWNER: str(os.getuid()), MACHINE: socket.gethostname()}


def job_labels(job_name: str, folder: Path) -> dict[str, str]:
    return {JOB: job_name, FOLDER: str(folder), **own_labels()}


def network_name(job_name: str, folder: Path) -> str:
    """Unique in an engine, where others may have a job of the same name."""
    return f"cloudtrain-{job_name}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
