"""The traces of all ranks as one, on rank 0's clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from cloudtrain.observe.timeline.clock import Offset
from cloudtrain.observe.timeline.traces import Event, Trace

DRIFT = 100e-6
"""Seconds a second; quartz crystals are better than that."""
_PROFILE_PROCESSES = 1000
"""Where the numbers of processes of a profile begin, for each rank: below them stand the timelines' own."""


def merge(traces: Sequence[Trace]) -> dict[str, Any]:
    """One trace, which Perfetto and chrome://tracing open, of `align`ed traces. Its first event is at 0."""
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
    """Traces by rank, their times by rank 0's clock. A profile has the offsets of its rank's timeline."""
    traces = sorted(traces, key=lambda trace: (trace.rank, trace.is_profile, trace.path.name))
    offsets = {trace.rank: trusted(trace.offsets) for trace in traces if trace.offsets}
    return [
        _shifted(trace, trusted(trace.offsets) if trace.offsets else offsets.get(trace.rank, ()))
        for trace in traces
    ]


def trusted(offsets: Sequence[Offset]) -> list[Offset]:
    """Those that tell more than the most certain one does, if clocks drift apart by no more than `DRIFT`."""
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
    """Both ends by their own offsets: what was in another span stays in it."""
    if "ts" not in event:
        return event
    times = (event["ts"], event["ts"] + event.get("dur", 0))
    began, ended = (ns + offset_at(offsets, start_ns + ns) for ns in (round(time * 1000) for time in times))
    return {**event, "ts": began / 1000, **({"dur": (ended - began) / 1000} if "dur" in event else {})}


def offset_at(offsets: Sequence[Offset], at_ns: int) -> int:
    """Nanoseconds to add at a time: between two measurements clocks are taken to drift evenly."""
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
    """Processes and flows of one rank must not be taken for those of another."""
    process = event.get("pid", 0)
    event["pid"] = processes.setdefault(process, _PROFILE_PROCESSES * (rank + 1) + len(processes))
    if "id" in event:
        event["id"] = f"rank {rank}: {event['id']}"
    arguments = event.get("args")
    if event.get("name") == "process_name" and arguments:
        event["args"] = {**arguments, "name": f"rank {rank}: {arguments.get('name', process)}"}
    elif event.get("name") == "process_sort_index":
        event["args"] = {"sort_index": event["pid"]}
