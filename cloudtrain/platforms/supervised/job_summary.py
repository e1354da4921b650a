"""Results that readers keep next to jobs: the summary of events, and the descriptions of jobs that have ended."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._system.files import read_regular, signature
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.contract.documents import is_number
from cloudtrain.observe import Goodput, Summary
from cloudtrain.platforms.base import HostState, JobDescription
from cloudtrain.runtime.supervisor.event_summary import EventSummary, from_cached, to_cached
from cloudtrain.runtime.supervisor.folder import DESCRIPTION, EVENTS, SUMMARY
from cloudtrain.runtime.supervisor.record import DAMAGED, LARGEST, RECORD
from cloudtrain.storage.atomic import replace_file

if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.root import JobFiles


def to_description(values: dict[str, Any], place: str | None = None) -> JobDescription:
    """The inverse of `JobDescription.to_dict`, for values of `from_cached`. ``place`` replaces the stored one."""
    return JobDescription(
        **{
            **values,
            "place": values["place"] if place is None else place,
            "status": JobStatus(values["status"]),
            "failure": values["failure"] and FailureReport.from_dict(values["failure"]),
            "hosts": [HostState(**host) for host in values.get("hosts", ())],
            "goodput": values["goodput"] and Goodput(**values["goodput"]),
        }
    )


def read_summary(job: JobFiles) -> Summary:
    """The summary of all events so far."""
    found = EventSummary.from_json(job.read(SUMMARY))
    summary = found.update(lambda position: job.read_part(EVENTS, position))
    found.store(lambda data: job.write(SUMMARY, data))
    return summary


SETTLED_SECONDS = 60.0
"""How long after the end of a job its description is final: if its supervisor was killed, hosts may add events."""


def recall(job: JobFiles) -> JobDescription | None:
    """The stored description of ``job``; None if there is none, or it does not belong to the job's record."""
    data = job.read(DESCRIPTION)
    found = from_cached(data) if data else None
    if not found or found["record"] != _digest(job.read(RECORD)):
        return None
    return to_description(found["description"], job.root.place(job.name))


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


OUTLINES = ".outlines.json"
"""A file in the folder of all jobs: the outlines of those that have ended."""
FEW_JOBS = 100
"""So many records are read again instead: a look at few jobs neither reads nor writes the file."""


class KnownOutlines:
    """The outlines of jobs that have ended, in one file for all jobs. Any reader may replace it.

    An outline counts while the stat data of its job's record are the same: no record is written in place.
    """

    def __init__(self, jobs: Path, platform: str) -> None:
        self._jobs = jobs
        self._platform = platform
        self._rows: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            self._rows = dict((from_cached(read_regular(jobs / OUTLINES, LARGEST)) or {})["jobs"])
        self._kept: dict[str, Any] = {}
        self._new = 0

    def get(self, name: str, look: Callable[[str], JobDescription]) -> JobDescription:
        """The outline of the job called ``name``, which ``look`` finds if it is not known. Raises what that raises."""
        try:
            status = [*signature(os.lstat(f"{self._jobs}/{name}/{RECORD}"))]
        except OSError:
            return look(name)
        row = self._rows.get(name)
        with contextlib.suppress(ValueError, LookupError, TypeError):
            if row and row[0] == status:
                found = _from_row(name, self._platform, *row[1:])
                self._kept[name] = row
                return found
        found = look(name)
        if found.status.is_final and found.reason != DAMAGED:
            self._kept[name] = [status, *_to_row(found)]
            self._new += 1
        return found

    def store(self) -> None:
        """Store the outlines of this look, if many of them are new."""
        if self._new > FEW_JOBS:
            with contextlib.suppress(OSError):  # a full disk: the next reader does it
                replace_file(self._jobs / OUTLINES, to_cached({"jobs": self._kept}), mode=0o600)


def _to_row(found: JobDescription) -> list[Any]:
    failure = found.failure and found.failure.to_dict()
    return [str(found.status), found.submitted_at, found.started_at, found.ended_at, found.reason, failure]


def _from_row(
    name: str, platform: str, status: str, submitted: Any, started: Any, ended: Any, reason: Any, failure: Any
) -> JobDescription:
    """The inverse of `_to_row`. Raises ValueError or TypeError."""
    times = (submitted, started or 0.0, ended or 0.0)
    if not (all(map(is_number, times)) and isinstance(reason, str)):
        raise TypeError
    report = failure and FailureReport.from_dict(failure)
    return JobDescription(
        name, platform, JobStatus(status), submitted, started, ended, failure=report, reason=reason
    )
