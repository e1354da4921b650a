"""Goodput from events: every second of a job is counted once."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from cloudtrain.observe.goodput import LOST, MOST_MARKS, Goodput, GoodputMeter
from cloudtrain.observe.summary import Summary
from cloudtrain.runtime.supervisor.event_summary import EventSummary

Events = list[dict[str, Any]]


def attempt(time: float) -> dict[str, Any]:
    return {"time": time, "event": "attempt"}


def step(time: float, number: int | None, stalled: float = 0.0, pid: int = 1) -> dict[str, Any]:
    return {"time": time, "event": "step", "step": number, "stalled": stalled, "pid": pid}


def restored(time: float, number: int | None, seconds: float) -> dict[str, Any]:
    return {"time": time, "event": "restored", "step": number, "seconds": seconds}


def train(time: float, state: str) -> dict[str, Any]:
    return {"time": time, "event": "phase", "phase": "train", "state": state, "seconds": 1.0}


def summary_of(data: bytes) -> Summary:
    return EventSummary().update(lambda position: data[position:])


def goodput(events: Events, ended_at: float | None = None, *, now: float = 1000.0) -> Goodput:
    """The goodput of a job that was submitted at 0. Every event is added after a round trip of the meter."""
    meter = GoodputMeter()
    for event in events:
        meter = GoodputMeter.from_dict(json.loads(json.dumps(meter.to_dict())))
        meter.add(event)
    found = meter.result(0.0, ended_at, now)
    assert found is not None
    assert math.isclose(found.productive + sum(found.lost.values()), found.wall, abs_tol=0.01)
    assert set(found.lost) <= set(LOST)
    data = "".join(json.dumps(event) + "\n" for event in events).encode()
    assert summary_of(data).meter.result(0.0, ended_at, now) == found
    return found


def hang(time: float, seconds: float) -> dict[str, Any]:
    """The event of a hang that is found at ``time``."""
    found = {"ranks": "0", "rank": 0, "host": "algo-1", "seconds": seconds}
    return {"time": time, "event": "hanging", "state": "began", **found}


def hang_over(time: float) -> dict[str, Any]:
    return {"time": time, "event": "hanging", "state": "ended"}


def retry(time: float) -> dict[str, Any]:
    return {"time": time, "event": "retry"}


def queued(since: float, time: float) -> dict[str, Any]:
    return {"time": time, "event": "queued", "since": since}


CASES: dict[str, tuple[Events, dict[str, float], float]] = {
    "no failure": (
        [attempt(2), restored(5, None, 1), step(10, 1), step(60, 51, stalled=5), step(90, 80, stalled=5)],
        {"queue": 2, "restore": 1, "start": 7, "checkpoints": 5, "end": 10},
        75,
    ),
    "a preemption, and 30 s in the queue": (
        [
            *(attempt(0), step(10, 1), step(40, 31), queued(42, 42)),
            *(attempt(72), restored(75, 31, 2), step(77, 32, pid=2), step(97, 52, pid=2)),
        ],
        {"start": 10, "queue": 30, "restore": 2, "restart": 5, "end": 3},
        50,
    ),
    "a hang that is over by itself": (
        [attempt(0), step(10, 1), hang(50, 30), hang_over(60), step(70, 31), step(100, 61)],
        {"start": 10, "hang": 40},
        50,
    ),
    "a second hang, since which no rank has printed anything either": (
        [
            *(attempt(0), step(10, 1), hang(30, 20), hang_over(40), hang(60, 50), retry(65), attempt(65)),
            *(restored(68, 1, 2), step(70, 2, pid=2), step(100, 32, pid=2)),
        ],
        {"start": 10, "hang": 55, "restore": 2, "restart": 3},
        30,
    ),
    "a step that was recorded before the hang, and arrives after it was found": (
        [attempt(0), step(10, 1), hang(50, 30), step(19, 10), step(60, 11), step(100, 51)],
        {"start": 10, "hang": 40},
        50,
    ),
    "a restart after a hang": (
        [
            *(attempt(0), step(10, 1), step(30, 21), hang(52, 20), retry(55)),
            *(attempt(60), restored(63, 21, 2), step(65, 22, pid=2), step(100, 57, pid=2)),
        ],
        {"start": 10, "hang": 23, "restore": 2, "restart": 10},
        55,
    ),
    "a hang in the queue's time": (
        [
            *(attempt(0), step(10, 1), step(30, 21), hang(52, 20), queued(55, 56)),
            *(attempt(70), restored(73, 21, 2), step(75, 22, pid=2), step(100, 47, pid=2)),
        ],
        {"start": 10, "hang": 23, "queue": 15, "restore": 2, "restart": 5},
        45,
    ),
    "a job that is stopped while it hangs": (
        [attempt(0), step(10, 1), step(30, 21), hang(52, 20)],
        {"start": 10, "hang": 68, "end": 2},
        20,
    ),
    "no steps, a hang and its restart": (
        [attempt(0), train(5, "began"), hang(52, 20), retry(55), attempt(60), train(62, "began")],
        {"restart": 39, "hang": 23},
        38,
    ),
    "no steps, and a hang that is over": (
        [attempt(0), train(5, "began"), hang(52, 20), hang_over(60), train(98, "ended")],
        {"start": 5, "hang": 28, "end": 2},
        65,
    ),
    "in the queue again": (
        [attempt(0), step(10, 1), step(40, 31), queued(42, 42)],
        {"start": 10, "queue": 58, "restart": 2},
        30,
    ),
    "no steps, and a host that was lost, as is found 50 s later": (
        [attempt(5), train(6, "began"), queued(20, 70), attempt(70), train(72, "began")],
        {"queue": 55, "restart": 17},
        28,
    ),
    "a failure that loses 20 steps of a second each": (
        [
            *(attempt(0), step(10, 1), step(30, 21), step(50, 41)),
            *(attempt(60), restored(63, 21, 2), step(65, 22, pid=2), step(95, 52, pid=2)),
        ],
        {"start": 10, "recomputed": 20, "restore": 2, "restart": 13, "end": 5},
        50,
    ),
    "a checkpoint between two reports": (
        [
            *(attempt(0), step(10, 0), step(30, 20), step(50, 40)),
            *(attempt(60), restored(60, 30, 0), step(60, 31, pid=2), step(100, 71, pid=2)),
        ],
        {"start": 10, "recomputed": 10, "restart": 10},
        70,
    ),
    "everything again, because nothing was saved": (
        [
            attempt(0),
            step(10, 1),
            step(50, 41),
            attempt(60),
            restored(61, None, 0),
            step(70, 1),
            step(100, 31),
        ],
        {"start": 10, "recomputed": 40, "restart": 20},
        30,
    ),
    "a script that numbers its steps and restores by itself": (
        [attempt(0), step(10, 0), step(50, 40), attempt(60), step(70, 31, pid=2), step(100, 61, pid=2)],
        {"start": 10, "recomputed": 10, "restart": 20},
        60,
    ),
    "a script without numbers counts as restarted": (
        [attempt(0), step(10, None), step(50, None), attempt(60), step(70, None), step(100, None)],
        {"start": 10, "recomputed": 40, "restart": 20},
        30,
    ),
    "an attempt that failed before its first step": (
        [attempt(0), attempt(30), step(40, 1), step(100, 61)],
        {"restart": 40},
        60,
    ),
    "ranks that the launcher has restarted": (
        [
            attempt(0),
            step(10, 0),
            step(50, 40),
            restored(60, 20, 1),
            step(62, 21, pid=2),
            step(100, 59, pid=2),
        ],
        {"start": 10, "recomputed": 20, "restore": 1, "restart": 11},
        58,
    ),
    "a restore to go back": (
        [attempt(0), step(10, 0), step(50, 40), restored(60, 20, 1), step(62, 21), step(100, 59)],
        {"start": 10, "recomputed": 20, "restore": 1, "restart": 11},
        58,
    ),
    "a restore to evaluate": (
        [attempt(0), step(10, 0), step(50, 40), restored(60, 20, 5), step(100, 80)],
        {"start": 10, "restore": 5},
        85,
    ),
    "a clock that goes back": (
        [attempt(0), step(10, 0), step(50, 40), step(45, 41), step(100, 59)],
        {"start": 10},
        90,
    ),
    "no steps": (
        [attempt(5), train(20, "began"), train(90, "ended")],
        {"queue": 5, "start": 15, "end": 10},
        70,
    ),
    "no steps, and a failure": (
        [attempt(5), train(20, "began"), attempt(50), train(60, "began"), train(100, "ended")],
        {"queue": 5, "restart": 55},
        40,
    ),
    "a script that never began": ([attempt(5)], {"queue": 5, "start": 95}, 0),
}


@pytest.mark.parametrize("what", CASES)
def test_every_second_is_counted_once(what: str) -> None:
    events, lost, productive = CASES[what]
    found = goodput(events, 100.0)
    assert found.lost == pytest.approx(lost)
    assert found.productive == pytest.approx(productive)
    assert found.goodput == pytest.approx(productive / 100)
    assert found.measured_by == ("script" if "script that never" in what or "no steps" in what else "steps")


def test_a_running_job_is_counted_until_its_last_step() -> None:
    events = [attempt(0), step(10, 0), step(50, 40)]
    assert goodput(events, now=55.0).wall == 50.0
    assert goodput(events, now=150.0).lost == {"start": 10.0, "end": 100.0}


def test_a_failed_attempt_counts_as_restart_until_the_next_step() -> None:
    events = [attempt(0), step(10, 0), step(50, 40), attempt(60), restored(70, 40, 4)]
    assert goodput(events, now=80.0).lost == {"start": 10.0, "restore": 4.0, "restart": 26.0}


def test_a_job_that_has_not_begun_has_none() -> None:
    assert GoodputMeter().result(0.0, None, 10.0) is None
    meter = GoodputMeter()
    meter.add(attempt(0))
    assert meter.result(0.0, 0.0, 0.0) is None


def test_the_meter_of_a_long_job_is_bounded() -> None:
    events = [attempt(0), *(step(number, number) for number in range(1, 10 * MOST_MARKS))]
    meter = GoodputMeter()
    for event in events:
        meter.add(event)
    assert len(meter.marks) <= MOST_MARKS
    meter.add(attempt(10 * MOST_MARKS))
    meter.add(restored(10 * MOST_MARKS, 5000, 0))
    meter.add(step(10 * MOST_MARKS, 5001, pid=2))
    assert meter.productive == pytest.approx(4999)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "step"},
        {"event": "step", "time": "soon", "step": 1, "stalled": 0},
        {"event": "step", "time": 1e400, "step": 1, "stalled": 0},
        {"event": "step", "time": 1, "step": [], "stalled": 0},
        {"event": "step", "time": 1, "step": 1e400, "stalled": 0},
        {"event": "restored", "time": 1, "step": 1, "seconds": "x"},
        {"event": "attempt"},
        {"event": []},
        {},
    ],
)
def test_an_event_of_any_form_is_skipped(event: dict[str, Any]) -> None:
    events = [attempt(0), step(10, 0), step(50, 40)]
    data = "".join(json.dumps(one) + "\n" for one in [*events[:2], event, *events[2:]]).encode()
    found = summary_of(data).meter.result(0.0, 50.0, 50.0)
    assert found == goodput(events, 50.0)
