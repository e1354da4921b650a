"""Traces of several ranks: clock offsets, merging, steps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloudtrain.errors import StorageError
from cloudtrain.observe.timeline import Offset, Trace, align, find_steps, merge, read_trace
from cloudtrain.observe.timeline.clock import Clock, measure
from cloudtrain.observe.timeline.traces import offset_at, trusted

SECOND = 10**9


def span(category: str, began: float, ended: float, lane: int = 2, **facts: Any) -> dict[str, Any]:
    times = {"tid": lane, "ts": began, "dur": ended - began}
    return {"name": category.upper(), "cat": category, "ph": "X", "pid": 0, "args": facts, **times}


def trace(rank: int, *spans: dict[str, Any], start_ns: int = 0, offsets: list[Offset] | None = None) -> Trace:
    return Trace(Path(f"{rank}.json"), rank, start_ns, list(spans), False, offsets=offsets or [])


def test_the_exchange_with_the_shortest_round_trip_counts() -> None:
    exchanges = iter([(0, 150, 100), (200, 275, 210), (300, 400, 350), None, (0, 0, 0)])
    assert measure(lambda: next(exchanges)) == Offset(at_ns=210, offset_ns=70, round_trip_ns=10)
    assert measure(lambda: None) is None


def test_a_clock_does_not_jump_when_the_wall_clock_is_set() -> None:
    wall, steady = [1000], [5]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    wall[0], steady[0] = 99, 8
    assert clock() == clock.at(8) == 1003


def test_offsets_are_interpolated_linearly() -> None:
    offsets = [Offset(0, 100, 1), Offset(1000, 200, 1)]
    assert [offset_at(offsets, at) for at in (-5, 0, 250, 1000, 9999)] == [100, 100, 125, 200, 200]


def test_an_inaccurate_measurement_is_skipped() -> None:
    poor, good, old = Offset(0, 9, 10**6), Offset(SECOND, 0, 1000), Offset(100 * SECOND, 5, 10**6)
    assert trusted([poor, good, old]) == [good, old]


PARTS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30)
DRIFTS = st.lists(st.tuples(st.integers(1, 10**9), st.floats(-1, 1)), max_size=4)
"""Nanoseconds until the next measurement, and the clock drift in that time."""


@given(PARTS, DRIFTS)
def test_nested_spans_stay_nested(parts: list[tuple[int, int]], drifts: list[tuple[int, float]]) -> None:
    offsets = [Offset(0, -400, 10)]
    for after, drift in drifts:
        last = offsets[-1]
        offsets.append(Offset(last.at_ns + after, last.offset_ns + int(after * drift), 10))
    spans = [span("operation", *sorted(part)) for part in parts]
    outer = span("operation", 0, 10**6)
    [aligned] = align([trace(1, outer, *spans, start_ns=50, offsets=offsets)])
    began, ended = aligned.events[0]["ts"], aligned.events[0]["ts"] + aligned.events[0]["dur"]
    for event in aligned.events:
        assert began - 1e-3 <= event["ts"]
        assert event["ts"] + event["dur"] <= ended + 1e-3


def test_steps_are_added_up() -> None:
    events = [
        span("step", 0, 100, lane=1, step=1),
        span("step", 100, 150, lane=1, step=2),
        span("wait", 80, 95, lane=1),
        span("wait", 20, 60, lane=9),  # of a thread without steps
        span("memcpy", 10, 15),
        span("memcpy", 12, 18),
        span("negotiate", 30, 40),
        span("operation", 40, 95),
        span("operation", 35, 90, lane=3),
        span("operation", 98, 120, lane=3),
        span("collective", 0, 150, lane=3),  # is in an operation
    ]
    other = [span("step", 0, 100, lane=1, step=1), span("wait", 10, 100, lane=1)]
    first, second = find_steps([trace(0, *events, start_ns=SECOND), trace(1, *other)])
    one, two = first.ranks
    micro = [round(value * 1e6, 3) for value in (one.total, one.compute, one.communication, one.exposed)]
    assert micro == [100, 77, 67, 23]
    assert one.began == 1.0
    assert (first.slowest, round(first.behind * 1e6, 3)) == (one, 67)
    assert two.rank == 1
    [alone] = second.ranks
    assert round(alone.communication * 1e6, 3) == 20
    assert second.behind == 0


def test_steps_are_numbered_consecutively_across_restarts() -> None:
    """After an elastic restart, rank 1 is a new process, which has overwritten the timeline of the first one."""
    step = [span("step", 0, 100, lane=1, step=1), span("step", 100, 400, lane=1, step=2)]
    later = 3 * SECOND
    traces = [
        trace(0, *step),
        trace(2, *step, start_ns=2000),
        trace(0, *step, start_ns=later),
        trace(1, *step, start_ns=later - 3000),
    ]
    found = find_steps(align(traces))
    assert [(step.number, [own.rank for own in step.ranks]) for step in found] == [
        *((1, [0, 2]), (2, [0, 2]), (3, [0, 1]), (4, [0, 1])),
    ]
    assert [round(step.slowest.total * 1e6) for step in found] == [100, 300, 100, 300]


def test_a_merged_trace_is_on_rank_0s_clock(tmp_path: Path) -> None:
    start = 1_700_000_000 * SECOND
    profile = {
        "baseTimeNanoseconds": start + 7000,
        "distributedInfo": {"rank": 1},
        "traceEvents": [
            {"name": "process_name", "ph": "M", "pid": 77, "ts": 0, "args": {"name": "python"}},
            {"name": "process_sort_index", "ph": "M", "pid": 77, "args": {"sort_index": 5}},
            {"name": "aten::add", "cat": "cpu_op", "ph": "X", "pid": 77, "tid": 3, "ts": 1.5, "dur": 2},
            {"name": "ac2g", "cat": "ac2g", "ph": "s", "id": 4, "pid": "Spans", "tid": 3, "ts": 2},
        ],
    }
    path = tmp_path / "profile.json.gz"
    path.write_bytes(gzip.compress(json.dumps(profile).encode()))
    offsets = [Offset(start, -3000, 10)]
    merged = merge(
        align(
            [
                read_trace(path),
                trace(1, span("step", 4, 6, step=1), start_ns=start, offsets=offsets),
                trace(0, span("step", 1, 2, step=1), start_ns=start),
            ]
        )
    )
    events = [event for event in merged["traceEvents"] if event["ph"] != "M"]
    assert [(event["name"], event["pid"], event["ts"]) for event in events] == [
        ("STEP", 0, 0.0), ("STEP", 0, 0.0), ("aten::add", 2000, 4.5), ("ac2g", 2001, 5.0)
    ]  # fmt: skip
    assert events[-1]["id"] == "rank 1: 4"
    [name] = [event for event in merged["traceEvents"] if event["name"] == "process_name"]
    assert name["args"] == {"name": "rank 1: python"}


REFUSED = {
    "missing": (None, r"cannot be read: No such file"),
    "text": ("hello", r"is not a trace"),
    "json": ('{"a": 1}', r"is not a trace"),
    "another": ('[\n{"name": "x", "ph": "X"}\n]', r"is not a timeline of cloudtrain"),
    "events": ('{"traceEvents": [1]}', r"is not a trace"),
    "list": ('{"traceEvents": 5}', r"is not a trace"),
    "nobody": ('{"traceEvents": [], "distributedInfo": null}', r"does not state which rank recorded it"),
    "rank": ('{"traceEvents": []}', r"does not state which rank recorded it"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(text: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "given.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(StorageError, match=words):
        read_trace(path)


def test_a_damaged_archive(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(bytes(range(256)) * 20))
    data[10] ^= 0xFF
    path = tmp_path / "damaged.json.gz"
    for damaged in (data, data[:30]):
        path.write_bytes(damaged)
        with pytest.raises(StorageError, match="cannot be read"):
            read_trace(path)


def test_the_rank_may_be_in_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.rank12.json"
    path.write_text('{"traceEvents": []}')
    assert read_trace(path).rank == 12
