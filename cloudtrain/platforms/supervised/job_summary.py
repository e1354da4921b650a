"""Results that readers keep next to a job: the summary of its events, and the description of a job that has ended."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cloudtrain._version import __version__
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe import Goodput, Summary, parse_events
from cloudtrain.observe.growing import Bookmark, is_same, new_lines
from cloudtrain.platforms.base import HostState, JobDescription
from cloudtrain.runtime.supervisor.folder import DESCRIPTION, EVENTS, SUMMARY
from cloudtrain.runtime.supervisor.record import RECORD

if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.root import JobFiles


def to_cached(values: dict[str, Any]) -> bytes:
    """``values`` for a file, with their hash: after any change of a byte, they count as missing."""
    text = json.dumps({"version": __version__, **values}, ensure_ascii=False)
    data = text.encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def from_cached(data: bytes) -> dict[str, Any] | None:
    """The inverse of `to_cached`; None for anything else, and for values of another version."""
    digest, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        return None
    values: dict[str, Any] = json.loads(content)
    return values if values["version"] == __version__ else None


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


STORE_BYTES = 1 << 14
"""Fewer bytes are read again instead: reading a small job writes nothing."""


@dataclass
class JobSummary:
    """The content of ``summary.json``. Any reader may replace it."""

    mark: Bookmark = field(default_factory=Bookmark)
    """How far the events were read."""
    summary: Summary = field(default_factory=Summary)

    def to_json(self) -> bytes:
        return to_cached({"events": self.mark.to_list(), "summary": self.summary.to_dict()})

    @classmethod
    def from_json(cls, data: bytes) -> JobSummary:
        """The inverse of `to_json`; an empty summary for damaged data, or that of another version."""
        found = from_cached(data) if data else None
        if not found:
            return cls()
        return cls(Bookmark.from_list(found["events"]), Summary.from_dict(found["summary"]))


def read_summary(job: JobFiles, *, store_bytes: int = STORE_BYTES) -> Summary:
    """The summary of all events so far.

    Args:
        store_bytes: store the summary if it covers at least this many bytes that the stored one does not.
    """
    found = JobSummary.from_json(job.read(SUMMARY))

    def read(position: int) -> bytes:
        return job.read_part(EVENTS, position)

    if not is_same(read, found.mark):
        found = JobSummary()
    stored = found.mark.position
    for lines in new_lines(read, found.mark):
        _add(found.summary, lines)
    if found.mark.position - stored >= store_bytes:
        with contextlib.suppress(
            OSError
        ):  # a full disk, or a folder that was removed: the next reader reads more
            job.write(SUMMARY, found.to_json())
    return found.summary


def _add(summary: Summary, lines: Iterable[str]) -> None:
    for event in parse_events(lines):
        summary.add(event)


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
