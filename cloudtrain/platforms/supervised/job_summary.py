"""Results that readers cache in job folders: the summary of events, and the descriptions of jobs that have ended."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe import Goodput, Sample, Summary
from cloudtrain.platforms.base import HostState, JobDescription
from cloudtrain.runtime.supervisor.event_summary import UNREADABLE, EventSummary, from_cached, to_cached
from cloudtrain.runtime.supervisor.folder import DESCRIPTION, EVENTS, SUMMARY
from cloudtrain.runtime.supervisor.record import RECORD

if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.root import JobFiles


def to_description(values: dict[str, Any], place: str | None = None) -> JobDescription:
    """The inverse of `JobDescription.to_dict`, for values of `from_cached`. ``place`` replaces the stored one."""
    return JobDescription(
        **{
            **values,
            "place": values["place"] if place is None else place,
            "status": JobStatus(values["status"]),
            "metric_ranges": {
                name: (low, high) for name, (low, high) in values.get("metric_ranges", {}).items()
            },
            "failure": values["failure"] and FailureReport.from_dict(values["failure"]),
            "hosts": [HostState(**host) for host in values.get("hosts", ())],
            "samples": {host: Sample.from_dict(sample) for host, sample in values.get("samples", {}).items()},
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
"""How long after its end a job's description is final: if the supervisor was killed, hosts may still add events."""


def recall(job: JobFiles) -> JobDescription | None:
    """The stored description of ``job``; None if there is none, or it was made from another record."""
    data = job.read(DESCRIPTION)
    found = from_cached(data) if data else None
    if not found or found["record"] != _digest(job.read(RECORD)):
        return None
    with contextlib.suppress(*UNREADABLE):
        return to_description(found["description"], job.root.place(job.name))
    return None


def remember(job: JobFiles, description: JobDescription) -> None:
    """Store the description of an ended job with many events, unless it may still change."""
    if description.ended_at is None or time.time() - description.ended_at < SETTLED_SECONDS:
        return
    record = _digest(job.read(RECORD))
    values = replace(description, place="").to_dict()
    with contextlib.suppress(OSError):  # a full disk, or a folder that was removed: the next reader retries
        job.write(DESCRIPTION, to_cached({"record": record, "description": values}))


def _digest(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()
