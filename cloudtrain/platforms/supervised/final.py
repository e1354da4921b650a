"""The description of a job that has ended, kept in ``description.json``: one list may have thousands of them."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudtrain.platforms.base import JobDescription
from cloudtrain.platforms.supervised.cached import from_cached, to_cached, to_description
from cloudtrain.runtime.supervisor.folder import DESCRIPTION
from cloudtrain.runtime.supervisor.record import RECORD

if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.root import JobFiles

SETTLED_SECONDS = 60.0
"""How long after the end of a job its description is final: if its supervisor was killed, hosts may add events."""


def recall(job: JobFiles) -> JobDescription | None:
    """The stored description of ``job``; None if there is none, or it does not belong to the job's record."""
    data = job.read(DESCRIPTION)
    found = from_cached(data) if data else None
    if not found or found["record"] != _digest(job.read(RECORD)):
        return None
    return replace(to_description(found["description"]), place=job.root.place(job.name))


def remember(job: JobFiles, description: JobDescription) -> None:
    """Store the description of a job that has ended, unless it may still change."""
    if description.ended_at is None or time.time() - description.ended_at < SETTLED_SECONDS:
        return
    record = _digest(job.read(RECORD))
    values = replace(description, place="").to_dict()
    with contextlib.suppress(OSError):  # a full disk, or a folder that was removed: the next reader does it
        job.write(DESCRIPTION, to_cached({"record": record, "description": values}))


def _digest(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()
