"""Merges the traces of all ranks, on rank 0's clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cloudtrain.observe.timeline.clock import Offset
from cloudtrain.observe.timeline.traces import Event, Trace

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
