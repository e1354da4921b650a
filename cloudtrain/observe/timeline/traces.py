"""Reads recordings of ranks: cloudtrain's timelines, and traces of ``torch.profiler``."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloudtrain.errors import StorageError
from cloudtrain.observe.timeline._writer import META, OFFSET
from cloudtrain.observe.timeline.clock import Offset

Event = dict[str, Any]
"""One of Chrome's trace events."""

_HINT = "Pass timelines of cloudtrain, or traces of torch.profiler (export_chrome_trace)."


@dataclass(frozen=True)
class Trace:
    """The recording of one rank."""

    path: Path
    rank: int
    start_ns: int
    """The time of ``ts`` 0, in ns since the epoch, on the rank's clock."""
    events: list[Event]
    is_profile: bool
    """Whether ``torch.profiler`` recorded it."""
    host: str = ""
    offsets: Sequence[Offset] = field(default_factory=list)
    """Offsets from rank 0's clock, in order of time."""

    @property
    def span(self) -> tuple[float, float]:
        """The begin, and the end of the last event, in microseconds since the epoch."""
        ends = (event["ts"] + event.get("dur", 0) for event in self.events if "ts" in event)
        begin = self.start_ns / 1000
        return begin, begin + max(ends, default=0.0)


def read_trace(path: Path) -> Trace:
    """Read a file. The end of a timeline may be missing.

    Raises:
        StorageError: the file cannot be read, is not a trace, or does not state its rank.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise StorageError(f"{path} cannot be read: {reason}", hint=_HINT) from error
    if text.startswith("["):
        return _timeline(path, _events(text))
    try:
        content = json.loads(text)
        return _profile(path, content, content["traceEvents"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} is not a trace", hint=_HINT) from error


def _events(text: str) -> list[Event]:
    """One event per line. Skips a last line that was cut short."""
    events = []
    for line in text.splitlines():
        try:
            event = json.loads(line.rstrip(","))
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _timeline(path: Path, events: list[Event]) -> Trace:
    try:
        [about] = [event["args"] for event in events if event.get("name") == META]
        offsets = [Offset(**event["args"]) for event in events if event.get("name") == OFFSET]
        return Trace(path, about["rank"], about["start_ns"], events, False, about["host"], offsets)
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is not a timeline of cloudtrain", hint=_HINT) from error


def _profile(path: Path, content: dict[str, Any], events: list[Event]) -> Trace:
    """``ts`` counts from ``baseTimeNanoseconds`` if the version of torch writes it, else from the epoch."""
    if not all(isinstance(event, dict) for event in events):
        raise TypeError("an event is not an object")
    rank = (content.get("distributedInfo") or {}).get("rank")
    if rank is None:
        named = re.search(r"rank\D?(\d+)", path.name)
        if named is None:
            raise StorageError(
                f"{path} does not state which rank recorded it",
                hint="Put the rank into the file name, as in trace.rank1.json.",
            )
        rank = int(named[1])
    return Trace(path, rank, content.get("baseTimeNanoseconds", 0), events, True)
