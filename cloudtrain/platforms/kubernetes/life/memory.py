"""The final descriptions of jobs, kept by the client that saw them: a main object is deleted when its TTL is over."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from cloudtrain._system.files import read_regular
from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.supervised.job_summary import from_cached, to_cached, to_description
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

LARGEST = 1 << 20
GONE = "its object is gone: deleted, or kept for as long as platform_options.ttl says"


def remember(description: JobDescription, place: str) -> None:
    """Keep the description of a job that has ended.

    Args:
        place: its cluster, namespace and kind: other jobs there may have the same name.
    """
    values = description.to_dict()
    with contextlib.suppress(OSError):  # a full disk: the next one who asks does it
        write_file(_path(description.name), to_cached({"place": place, "description": values}))


def recall(job_name: str, place: str) -> JobDescription | None:
    """The description of a job that this client has seen end; None if it has not."""
    with contextlib.suppress(OSError):
        found = from_cached(read_regular(_path(job_name), LARGEST))
        if found and found["place"] == place:
            description = to_description(found["description"])
            return replace(description, details={**description.details, "object": GONE})
    return None


def forget(job_name: str) -> None:
    """The next job of this name is another one."""
    with contextlib.suppress(OSError):
        _path(job_name).unlink(missing_ok=True)


def _path(job_name: str) -> Path:
    return state_home() / "ended" / "kubernetes" / f"{job_name}.json"
