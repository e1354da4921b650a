"""The progress of a training, its rate and the remaining time, from events of steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudtrain.observe.step_meter import MOST_MARKS, StepMeter

START = 1_800_000_000.0


def metered(*steps: tuple[float, int], total: int | None = 1000, pid: int | None = 5) -> StepMeter:
    """A meter after steps, each with its time since the start."""
    meter = StepMeter()
    for time, step in steps:
        add(meter, time, step, total, pid)
    return meter


def add(
    meter: StepMeter, time: float, step: int | None, total: int | None = 1000, pid: int | None = 5
) -> None:
    event = {"event": "step", "time": START + time, "step": step, "stalled": 0.0}
    meter.add(event | ({"total": total} if total else {}) | ({"pid": pid} if pid else {}))


def result(meter: StepMeter, now: float, *, is_running: bool = True) -> dict[str, Any]:
    return meter.result(START + now, is_running=is_running)


def test_compilation_is_not_a_step() -> None:
    """The first step ends after ten minutes, the others after a second each."""
    meter = metered(*((600.0 + step, step) for step in range(1, 101)))
    assert result(meter, 702.0) == {
        "step": 100,
        "total_steps": 1000,
        "progress": 0.1,
        "step_rate": pytest.approx(1.0),
        "remaining_seconds": 898.0,
        "stalled_seconds": None,
    }


def test_the_rate_is_that_of_the_last_steps() -> None:
    """An hour with a step a second, then half an hour with one in ten seconds."""
    fast = [(float(second), second) for second in range(1, 3601, 5)]
    slow = [(3600.0 + 10 * step, 3600 + step) for step in range(1, 181)]
    meter = metered(*fast, *slow, total=10_000)
    assert result(meter, 5400.0)["step_rate"] == pytest.approx(0.1)


def test_a_slow_phase_is_over_soon_after_it_has_ended() -> None:
    meter = metered(
        *((10.0 * step, step) for step in range(1, 31)), *((300.0 + step, 30 + step) for step in range(1, 91))
    )
    assert result(meter, 390.0)["step_rate"] == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("steps", [[], [(5.0, 1)]])
def test_unknown_stays_unknown(steps: list[tuple[float, int]]) -> None:
    found = result(metered(*steps), 10.0)
    assert (found["step_rate"], found["remaining_seconds"]) == (None, None)


def test_without_a_total_there_is_a_rate_only() -> None:
    found = result(metered((1, 10), (2, 20), total=None), 2.0)
    assert (found["step_rate"], found["progress"], found["remaining_seconds"]) == (10.0, None, None)


def test_a_total_that_is_wrong_is_not_believed() -> None:
    found = result(metered((1, 999), (2, 1001)), 2.0)
    assert (found["step"], found["progress"], found["remaining_seconds"]) == (1001, None, None)


def test_repeated_steps_count_again() -> None:
    meter = metered(*((float(step), step) for step in range(1, 501)))
    meter.add({"event": "attempt", "time": START + 510.0, "attempt": 1})
    found = result(meter, 511.0)
    assert (found["step"], found["step_rate"], found["remaining_seconds"]) == (500, None, None)
    meter.add({"event": "restored", "time": START + 520.0, "step": 400, "seconds": 1.0})
    assert result(meter, 521.0)["progress"] == 0.4
    for step in range(401, 411):
        add(meter, 130.0 + step, step, pid=6)
    found = result(meter, 540.0)
    assert (found["progress"], found["step_rate"], found["remaining_seconds"]) == (0.41, 1.0, 590.0)


def test_steps_that_go_back_are_another_start() -> None:
    """A launcher has restarted the ranks: there is no event about it."""
    meter = metered((1, 100), (2, 200), (300, 50), (301, 60))
    assert result(meter, 301.0)["step_rate"] == 10.0


def test_a_stall_shows() -> None:
    meter = metered(*((float(step), step) for step in range(1, 101)))
    assert result(meter, 150.0)["remaining_seconds"] == 850.0
    found = result(meter, 200.0)
    assert (found["stalled_seconds"], found["remaining_seconds"], found["progress"]) == (100.0, None, 0.1)


def test_a_pause_like_those_before_does_not_count_as_a_stall() -> None:
    """Every ten steps, an evaluation takes two minutes."""
    times = [(step + 120.0 * (step // 10), step) for step in range(1, 40)]
    assert result(metered(*times), times[-1][0] + 130.0)["stalled_seconds"] is None


def test_the_end_of_the_training_does_not_count_as_a_stall() -> None:
    meter = metered((1, 999), (2, 1000))
    found = result(meter, 2000.0)
    assert (found["progress"], found["remaining_seconds"], found["stalled_seconds"]) == (1.0, 0.0, None)
    early = metered((1, 500), (2, 501))  # a script that stopped early uploads its model
    early.add({"event": "phase", "time": START + 3.0, "phase": "train", "state": "ended", "seconds": 3.0})
    found = result(early, 2000.0)
    assert (found["step_rate"], found["remaining_seconds"], found["stalled_seconds"]) == (None, None, None)


def test_a_job_that_has_ended_has_no_remaining_time() -> None:
    found = result(metered((1, 400), (2, 401)), 2.0, is_running=False)
    assert (found["progress"], found["step_rate"], found["remaining_seconds"]) == (0.401, None, None)


def test_what_a_trainer_reports_gives_way_to_what_the_script_reports() -> None:
    meter = metered((1, 10), (2, 20))
    add(meter, 3.0, 2, total=7, pid=None)
    found = result(meter, 3.0)
    assert (found["step"], found["total_steps"]) == (20, 1000)


def test_steps_without_a_number_change_nothing() -> None:
    meter = metered((1, 10), (2, 20))
    add(meter, 3.0, None)
    assert result(meter, 2.0)["step"] == 20


def test_its_size_is_bounded() -> None:
    meter = metered(*((step / 1000, step) for step in range(50_000)), total=None)
    assert len(meter.marks) <= MOST_MARKS
    assert result(meter, 50.0)["step_rate"] == pytest.approx(1000.0, rel=0.01)
    assert StepMeter.from_dict(json.loads(json.dumps(meter.to_dict()))) == meter


def test_a_clock_that_is_set_back_gives_no_negative_rate() -> None:
    meter = metered((100, 10), (101, 11), (50, 12), (51, 13))
    assert result(meter, 51.0)["step_rate"] == 1.0
