"""The containers and networks in an engine that outlived their supervisors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from cloudtrain.engine.client import EngineClient, engine_errors
from cloudtrain.platforms.container.specs import FOLDER, own_labels
from cloudtrain.platforms.supervised.leftovers import Leftover, may_be_alive
from cloudtrain.runtime.supervisor.folder import JobFolder


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
