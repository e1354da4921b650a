"""The summary of a job's events in ``summary.json``, which saves readers from reading millions of events."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import field
from typing import Any, Callable

from cloudtrain._dataclass import dataclass
from cloudtrain._version import __version__
from cloudtrain.contract.documents import parse_json
from cloudtrain.observe.events import parse_events
from cloudtrain.observe.growing import Bookmark, Read, is_same, new_lines
from cloudtrain.observe.summary import Summary

STORE_BYTES = 1 << 14
"""The fewest new bytes of events that a summary is stored for. Small jobs have none, so reading them writes nothing."""


def to_cached(values: dict[str, Any]) -> bytes:
    """``values`` as the content of a file, with their hash: if any byte changes, they count as missing."""
    text = json.dumps({"version": __version__, **values}, ensure_ascii=False)
    data = text.encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def from_cached(data: bytes) -> dict[str, Any] | None:
    """The inverse of `to_cached`; None for anything else, and for values of another version."""
    digest, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        return None
    try:
        values = parse_json(content)
    except ValueError:  # a script has forged it
        return None
    return values if isinstance(values, dict) and values.get("version") == __version__ else None


UNREADABLE = (TypeError, ValueError, KeyError, AttributeError)
"""Raised for cached values with other fields, from another commit of the same version."""


@dataclass
class EventSummary:
    """The content of ``summary.json``. The supervisor and any reader may replace it."""

    mark: Bookmark = field(default_factory=Bookmark)
    """The position up to which the events were read."""
    summary: Summary = field(default_factory=Summary)
    stored: int = 0
    """The position up to which the file covers the events."""

    def to_json(self) -> bytes:
        return to_cached({"events": self.mark.to_list(), "summary": self.summary.to_dict()})

    @classmethod
    def from_json(cls, data: bytes) -> EventSummary:
        """The inverse of `to_json`; an empty summary for damaged data, or that of another version."""
        found = from_cached(data) if data else None
        if not found:
            return cls()
        try:
            mark = Bookmark.from_list(found["events"])
            return cls(mark, Summary.from_dict(found["summary"]), mark.position)
        except UNREADABLE:
            return cls()

    def update(self, read: Read) -> Summary:
        """The summary of all events so far. ``read`` returns events from a position on; its errors are raised."""
        if not is_same(read, self.mark):
            self.mark, self.summary, self.stored = Bookmark(), Summary(), 0
        for lines in new_lines(read, self.mark):
            for event in parse_events(lines):
                self.summary.add(event)
        return self.summary

    def store(self, write: Callable[[bytes], object]) -> None:
        """Write the file if it would cover at least `STORE_BYTES` more than before."""
        if self.mark.position - self.stored >= STORE_BYTES:
            with contextlib.suppress(OSError):  # a full disk or a removed folder: the next reader reads more
                write(self.to_json())
                self.stored = self.mark.position
