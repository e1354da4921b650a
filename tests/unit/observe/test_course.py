"""The course of a job: attempts, phases on a time axis, ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.observe import EventLog, Summary, read_events, summarize
from cloudtrain.observe.course import MOST_HOSTS, MOST_RANKS, Attempt, Span
from cloudtrain.observe.stacks import StackReader
from cloudtrain.observe.summary import MOST_NAMES


class Record:
    """Writes the events of several hosts at given times, as the runtime does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events.jsonl"

    def emit(self, at: float, source: str, event: str, /, **fields: Any) -> None:
        EventLog(self.path, source, clock=lambda: 1000.0 + at).emit(event, **fields)

    @property
    def summary(self) -> Summary:
        found = summarize(read_events(self.path))
        assert Summary.from_dict(json.loads(json.dumps(found.to_dict()))).course == found.course
        return found


def test_two_attempts_on_a_time_axis(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.emit(0, "supervisor", "attempt", attempt=0)
    for number, host in enumerate(("a", "b")):
        record.emit(1 + number, host, "phase", phase="train", state="began")
        record.emit(1 + number, host, "launch", ranks=[2 * number + 1, 2 * number])
    record.emit(5, "a", "rank-ended", rank=1, exit_code=9)
    record.emit(6, "a", "phase", phase="train", state="ended", seconds=5.0)
    found = record.summary.course
    assert [(host, ranks.ranks, ranks.ended) for host, ranks in found.hosts.items()] == [
        ("a", [0, 1], [(1, 9)]),
        ("b", [2, 3], []),
    ]
    assert found.spans == [Span(0, "train", 1001, None, hosts=1)]  # host b is in it still
    record.emit(8, "supervisor", "retry", attempt=1, failure="rank 1 was killed")
    record.emit(9, "supervisor", "attempt", attempt=1)
    record.emit(10, "a", "phase", phase="train", state="began")
    record.emit(11, "a", "metric", name="loss", value=1.0, rank=0, step=7)
    record.emit(12, "a", "phase", phase="train", state="ended", seconds=2.0)
    record.emit(13, "supervisor", "job", status="Completed", exit_code=0)
    found = record.summary.course
    assert found.attempts == [Attempt(0, 1000, 1008, "rank 1 was killed"), Attempt(1, 1009, 1013)]
    assert found.spans == [Span(0, "train", 1001, 1008, hosts=1), Span(1, "train", 1010, 1012, hosts=0)]
    assert {host: ranks.step for host, ranks in found.hosts.items()} == {"a": 7}


def test_a_thousand_hosts_are_known_by_name(tmp_path: Path) -> None:
    summary = Summary()
    for number in range(MOST_NAMES + 24):
        summary.add({"time": 1.0, "source": f"host-{number}", "event": "host"})
        summary.add({"time": 1.0, "source": f"host-{number}", "event": "launch", "ranks": [number]})
    assert len(summary.hosts) == len(summary.course.hosts) == MOST_NAMES + 24


def test_a_script_cannot_make_it_grow_or_fail() -> None:
    summary = Summary()
    for number in range(3000):
        summary.add({"time": float(number), "event": "attempt", "attempt": number})
        summary.add({"time": 1.0, "source": "a", "event": "phase", "phase": f"p{number}", "state": "began"})
    for number in range(MOST_HOSTS + 9):
        summary.add({"time": 1.0, "source": f"h{number}", "event": "launch", "ranks": [number]})
    for bad in ([], {}, "x", [None], [True], list(range(MOST_RANKS + 1)), None):
        summary.add({"time": 1.0, "source": "h1", "event": "launch", "ranks": bad})
        summary.add({"time": bad, "source": "h1", "event": "rank-ended", "rank": bad, "exit_code": bad})
        summary.add({"time": bad, "source": bad, "event": "attempt", "attempt": bad})
    assert len(summary.course.attempts) <= 200 and len(summary.course.spans) <= 1000
    assert len(summary.course.hosts) == MOST_HOSTS
    assert summary.course.attempts[0].number == 0
    assert len(json.dumps(summary.course.to_dict())) < 1_000_000


def test_long_texts_of_forged_events_are_cut() -> None:
    summary, long = Summary(), "x" * 60_000
    for number in range(100):
        summary.add({"time": 1.0, "source": "a", "event": "attempt", "attempt": number})
        summary.add(
            {"time": 1.0, "source": "a", "event": "phase", "phase": f"{number}{long}", "state": "began"}
        )
        summary.add({"time": 1.0, "source": "a", "event": "retry", "failure": long})
        group = {"id": long, "ranks": long, "count": 1, "hosts": [long] * 9}
        summary.add({"time": 1.0, "source": "a", "event": "stacks", **group})
    summary.add(
        {"time": 1.0, "source": "a", "event": "stacks-taken", "id": long, "silent": [long], "why": long}
    )
    assert summary.stacks.last and len(summary.stacks.last.groups) == 48
    assert len(json.dumps(summary.to_dict())) < 400_000


def test_an_invalid_event_leaves_the_stacks_as_they_were() -> None:
    reader = StackReader()
    reader.add({"event": "stacks", "id": "a", "ranks": "0", "count": 1})
    for bad in ({"event": "stacks", "ranks": 1}, {"event": "stacks-taken", "ranks": "x"}):
        with pytest.raises(ValueError, match="ranks"):
            reader.add({"id": "b", **bad})
    assert reader.pending and reader.pending.id == "a"
