"""Reads recordings of ranks, which are cloudtrain's timelines or traces of ``torch.profiler``, and merges them on the
clock of rank 0."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
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
        """The beginning, and the end of the last event, in microseconds since the epoch."""
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


DRIFT = 100e-6
"""Upper bound of the clock drift, in seconds per second. Quartz clocks are more accurate."""
_PROFILE_PROCESSES = 1000
"""Process ids of rank R's profile start at this times R + 1. Timelines use smaller ids."""


def merge(traces: Sequence[Trace]) -> dict[str, Any]:
    """Merge `align`ed traces into one for Perfetto or chrome://tracing. Its first event is at 0."""
    start = min((_first(trace) for trace in traces), default=0)
    merged: list[Event] = []
    for trace in traces:
        shift = (trace.start_ns - start) / 1000
        processes: dict[Any, int] = {}
        for event in trace.events:
            changed = dict(event)
            if "ts" in event:
                changed["ts"] = round(event["ts"] + shift, 3)
            if trace.is_profile:
                _place(changed, trace.rank, processes)
            merged.append(changed)
    merged.sort(key=lambda event: (event.get("ph") != "M", event.get("ts", 0), -event.get("dur", 0)))
    return {"displayTimeUnit": "ms", "traceEvents": merged}


def align(traces: Iterable[Trace]) -> list[Trace]:
    """Traces sorted by rank, with times of rank 0's clock. A profile uses the offsets of its rank's timeline."""
    traces = sorted(traces, key=lambda trace: (trace.rank, trace.is_profile, trace.path.name))
    offsets = {trace.rank: trusted(trace.offsets) for trace in traces if trace.offsets}
    return [
        _shifted(trace, trusted(trace.offsets) if trace.offsets else offsets.get(trace.rank, ()))
        for trace in traces
    ]


def trusted(offsets: Sequence[Offset]) -> list[Offset]:
    """Offsets that are more accurate at their time than the best one, given a clock drift of at most `DRIFT`."""
    best = min(offsets, key=lambda offset: offset.round_trip_ns)
    return [
        offset
        for offset in offsets
        if offset.round_trip_ns <= best.round_trip_ns + 2 * DRIFT * abs(offset.at_ns - best.at_ns)
    ]


def _shifted(trace: Trace, offsets: Sequence[Offset]) -> Trace:
    if not offsets:
        return trace
    events = [_shifted_event(event, trace.start_ns, offsets) for event in trace.events]
    return replace(trace, events=events, offsets=offsets)


def _shifted_event(event: Event, start_ns: int, offsets: Sequence[Offset]) -> Event:
    """Shift both ends by their own offsets, which preserves the nesting of spans."""
    if "ts" not in event:
        return event
    times = (event["ts"], event["ts"] + event.get("dur", 0))
    began, ended = (ns + offset_at(offsets, start_ns + ns) for ns in (round(time * 1000) for time in times))
    return {**event, "ts": began / 1000, **({"dur": (ended - began) / 1000} if "dur" in event else {})}


def offset_at(offsets: Sequence[Offset], at_ns: int) -> int:
    """Nanoseconds to add at a given time, interpolated linearly between measurements."""
    place = bisect_right([offset.at_ns for offset in offsets], at_ns)
    if place == 0 or place == len(offsets):
        return offsets[max(place - 1, 0)].offset_ns
    before, after = offsets[place - 1], offsets[place]
    share = (at_ns - before.at_ns) / (after.at_ns - before.at_ns)
    return before.offset_ns + round(share * (after.offset_ns - before.offset_ns))


def _first(trace: Trace) -> int:
    times = [event["ts"] for event in trace.events if "ts" in event and event.get("ph") != "M"]
    return trace.start_ns + round(min(times, default=0) * 1000)


def _place(event: Event, rank: int, processes: dict[Any, int]) -> None:
    """Make the ids of processes and flows unique across ranks."""
    process = event.get("pid", 0)
    event["pid"] = processes.setdefault(process, _PROFILE_PROCESSES * (rank + 1) + len(processes))
    if "id" in event:
        event["id"] = f"rank {rank}: {event['id']}"
    arguments = event.get("args")
    if event.get("name") == "process_name" and arguments:
        event["args"] = {**arguments, "name": f"rank {rank}: {arguments.get('name', process)}"}
    elif event.get("name") == "process_sort_index":
        event["args"] = {"sort_index": event["pid"]}
