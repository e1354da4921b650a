"""Events as lines of a log: what a client believes, and how many lines there are."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from cloudtrain.observe.event_lines import BURST, LONGEST, EventThinner, encode_event, parse_event_line
from cloudtrain.observe.events import MARK, OF_THE_SUPERVISOR

NOW = 1_700_000_000.0


def metric(name: str, value: float, time: float = NOW) -> dict[str, Any]:
    return {"time": time, "source": "j-0", "event": "metric", "name": name, "value": value, "rank": 0}


@pytest.mark.parametrize(
    "event",
    [
        metric("loss", 0.5),
        metric("é\u2028\x1b[31m\ud800", 1e300),
        {"time": NOW, "source": "j-0", "event": "phase", "phase": "fetch", "state": "ended", "seconds": 1.5},
        {"time": NOW, "source": "j-0", "event": "step", "step": 3, "stalled": 0.0, "pid": 70},
        {"time": NOW, "source": "j-0", "event": "of a newer version", "list": [1, "two"]},
    ],
)
def test_a_line_has_the_whole_event(event: dict[str, Any]) -> None:
    line = encode_event(event)
    assert line.isascii() and line.count(b"\n") == 1 and line.endswith(b"\n")
    assert parse_event_line(line.rstrip(b"\n"), "j-0", NOW) == event
    assert parse_event_line(line.decode(), "j-0") == event


def test_nan_is_a_value() -> None:
    event = parse_event_line(encode_event(metric("loss", math.nan)), "j-0")
    assert event and math.isnan(event["value"])


def test_a_long_event_is_cut_to_a_line_that_nothing_splits() -> None:
    warning = {"time": NOW, "source": "j-0", "event": "warning", "message": '"\x00é' * 3000}
    launch = {
        "time": NOW,
        "source": "j-0",
        "event": "launch",
        "command": "x" * 9000,
        "ranks": list(range(9000)),
    }
    for event in (warning, launch):
        line = encode_event(event)
        assert len(line) <= LONGEST
        found = parse_event_line(line, "j-0", NOW)
        assert found and found["event"] == event["event"] and found["time"] == NOW
    assert encode_event({"event": "x", **{str(number): number for number in range(9000)}}) == b""


@pytest.mark.parametrize(
    "text",
    [
        '{"event": "metric", "name": ["loss"], "value": "x", "time": 1}',
        '{"event": "progress", "phase": "train", "done": null}',
        '{"event": {"a": 1}}',
        '{"event": "metric", "name": "loss"',
        "[" * 100_000,
        "x" * 70_000,
        "[1]",
        "",
        *(json.dumps({"event": kind, "time": NOW}) for kind in OF_THE_SUPERVISOR),
    ],
)
def test_a_line_without_an_event_of_a_host_is_none(text: str) -> None:
    assert parse_event_line(MARK + text, "j-0") is None


@pytest.mark.parametrize("prefix", ["[rank 0] ", " ", "\x1b[0m", "["])
def test_only_the_beginning_of_a_line_counts(prefix: str) -> None:
    assert parse_event_line(prefix.encode() + encode_event(metric("loss", 1.0)), "j-0") is None


def test_a_forged_event_has_the_host_and_the_time_of_its_line() -> None:
    forged = encode_event({**metric("loss", 1.0, time=9e9), "source": "another-host"})
    assert parse_event_line(forged, "j-0", NOW) == metric("loss", 1.0)
    assert parse_event_line(encode_event(metric("loss", 1.0, NOW - 59)), "j-0", NOW) == metric(
        "loss", 1.0, NOW - 59
    )
    without_time = MARK + '{"event": "warning", "message": "x"}'
    found = parse_event_line(without_time, "j-0", NOW)
    assert found == {"time": NOW, "source": "j-0", "event": "warning", "message": "x"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_metric_has_a_line_a_second_and_its_last_value_has_one_too() -> None:
    clock = Clock()
    thinner = EventThinner(clock)
    shown = []
    for number in range(25):  # 2.5 seconds
        shown += thinner.pass_on([metric("loss", number), metric("acc", -number)])
        shown += thinner.due()
        clock.now += 0.1
    values = [event["value"] for event in shown if event["name"] == "loss"]
    assert len(values) == 3 and values[0] == 0
    assert [event["value"] for event in thinner.rest()] == [24, -24]
    assert not list(thinner.rest()) and not list(thinner.due())


def test_progress_of_a_phase_that_has_ended_is_not_shown_later() -> None:
    thinner = EventThinner(Clock())
    progress = [{"event": "progress", "phase": "fetch", "done": done, "total": 2} for done in (1, 2)]
    ended = {"event": "phase", "phase": "fetch", "state": "ended", "seconds": 1.0}
    assert list(thinner.pass_on([*progress, ended])) == [progress[0], ended]
    assert not list(thinner.rest())


def test_the_number_of_lines_is_bounded_for_any_records() -> None:
    clock = Clock()
    thinner = EventThinner(clock)
    warnings = [{"event": "warning", "message": str(number)} for number in range(100_000)]
    assert len(list(thinner.pass_on(warnings))) == BURST
    names = [metric(str(number), 1.0) for number in range(100_000)]
    assert len(list(thinner.pass_on(names))) == 1000
    assert not list(thinner.pass_on(names)) and len(list(thinner.rest())) == 1000
    clock.now += 1
    assert len(list(thinner.pass_on(warnings))) == 20
