"""A job's containers and network in an engine: their labels, their names, and those that a lost supervisor left."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cloudtrain._system.users import user_id
from cloudtrain.engine.client import EngineClient, engine_errors
from cloudtrain.platforms.supervised.leftovers import Leftover, may_be_alive
from cloudtrain.runtime.supervisor.folder import JobFolder

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


def leftovers_in(client: EngineClient) -> Iterator[Leftover]:
    """The leftovers of this user's jobs on this machine, containers first. Raises PlatformError."""
    filters = {"label": [f"{name}={value}" for name, value in own_labels().items()]}
    with engine_errors("cannot list the containers and networks of the engine"):
        containers = client.api.containers(all=True, size=True, filters=filters)
        networks = client.api.networks(filters=filters)
    for found in filter(_is_abandoned, containers):
        name = found["Names"][0].lstrip("/")
        yield Leftover("container", name, found.get("SizeRw") or 0, partial(client.remove, found["Id"]))
    for found in filter(_is_abandoned, networks):
        yield Leftover("network", found["Name"], 0, partial(client.remove_network, found["Name"]))


def _is_abandoned(found: dict[str, Any]) -> bool:
    folder = (found.get("Labels") or {}).get(FOLDER)
    return folder is not None and not may_be_alive(JobFolder(Path(folder)))
