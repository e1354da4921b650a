"""The summary of a job's events, kept in ``summary.json`` next to them: a reader only reads what is new."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudtrain.observe import Summary, parse_events
from cloudtrain.observe.growing import Bookmark, is_same, new_lines
from cloudtrain.platforms.supervised.cached import from_cached, to_cached
from cloudtrain.runtime.supervisor.folder import EVENTS, SUMMARY

if TYPE_CHECKING:
    from cloudtrain.platforms.supervised.root import JobFiles

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
