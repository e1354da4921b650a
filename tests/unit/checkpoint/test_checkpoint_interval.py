"""``every="auto"``: the interval from the cost of the saves and the failures of the job."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_trees import saver

from cloudtrain.checkpoint.interval import LEAST_MTBF, AutoSchedule, JobFailures, best_interval, job_mtbf
from cloudtrain.environment import _preemption
from cloudtrain.errors import CheckpointError
from cloudtrain.observe.events import read_events
from cloudtrain.observe.summary import summarize

HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds that have passed since the start of the test."""
    passed = [0.0]
    began = round(time.monotonic())  # whole: differences are exact
    monkeypatch.setattr("time.monotonic", lambda: began + passed[0])
    monkeypatch.setattr("cloudtrain.observe.steady.now", lambda: 1e9 + passed[0])
    yield passed
    _preemption._reset()  # `maybe_save` handles signals


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The events of a job on two hosts that has run for an hour before this attempt."""
    path = tmp_path / "events.jsonl"
    path.touch()
    monkeypatch.setenv("CLOUDTRAIN_EVENTS_FILE", str(path))
    monkeypatch.setenv("CLOUDTRAIN_RAN", str(HOUR))
    monkeypatch.setenv("SM_HOSTS", '["algo-1", "algo-2"]')
    monkeypatch.delenv("CLOUDTRAIN_ATTEMPT", raising=False)
    return path


def intervals(schedule: AutoSchedule, clock: list[float], seconds: int, stop: float) -> list[int]:
    """The moments of the saves of a training with a step per second, each of which stops it for ``stop``."""
    moments = []
    for moment in range(seconds):
        clock[0] = moment
        if schedule.is_due(moment):
            moments.append(moment)
            schedule.saved(moment)
            schedule.stopped(stop)
    return moments


def test_a_short_job_has_a_save_and_loses_at_most_half_of_its_time(clock: list[float], job: Path) -> None:
    assert intervals(AutoSchedule("10m"), clock, 2000, 1.0) == [30, 60, 120, 240, 480, 960, 1560]


def test_the_interval_is_that_of_the_formula_for_its_failures(
    clock: list[float], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", "4")
    moments = intervals(AutoSchedule("2h"), clock, 7200, 2.0)
    assert moments[:3] == [30, 60, 120]
    for before, after in itertools.pairwise(moments[3:]):
        assert after - before == pytest.approx(best_interval((HOUR + before) / 4, 2.0), abs=1.01)


def test_before_a_failure_what_is_published_for_as_many_hosts(job: Path, clock: list[float]) -> None:
    assert JobFailures().mtbf() == job_mtbf(2, 6.5)


@pytest.mark.parametrize("step", [5 * HOUR, -5 * HOUR], ids=["ahead", "back"])
def test_a_clock_that_is_set_changes_nothing(
    job: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", "4")
    schedule = AutoSchedule("2h")
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + step)
    assert intervals(schedule, clock, 180, 2.0) == [30, 60, 120]
    assert JobFailures().mtbf() == HOUR / 4


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_the_interval_follows_a_save_that_costs_ten_times_as_much_or_as_little(
    clock: list[float], job: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", "4")
    schedule, cost, moments = AutoSchedule("30m"), 1.0, []
    for moment in range(40_000):
        clock[0] = moment
        if schedule.is_due(moment):
            moments.append(moment)
            cost = factor if len(moments) > 20 else 1.0
            schedule.saved(moment)
            schedule.stopped(cost)
    for number in (20, 25, len(moments) - 1):
        expected = best_interval((HOUR + moments[number - 1]) / 4, 1.0 if number == 20 else factor)
        assert moments[number] - moments[number - 1] == pytest.approx(min(expected, 1800), abs=1.01)


@pytest.mark.parametrize(
    ("ran", "attempt", "hosts"), [("", "x", "["), ("nan", "-1", "3"), ("1e999", "", "null"), ("-1", "0", "0")]
)
def test_what_a_script_has_written_over_is_not_relied_on(
    clock: list[float], ran: str, attempt: str, hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_RAN", ran)
    monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", attempt)
    monkeypatch.setenv("SM_HOSTS", hosts)
    failures = JobFailures()
    assert failures.mtbf() == job_mtbf(1, 6.5)
    failures.count = 1
    assert failures.mtbf() == LEAST_MTBF


def test_a_slow_commit_is_not_followed_by_the_next_immediately(
    clock: list[float], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_ATTEMPT", "100")
    schedule = AutoSchedule()
    schedule.committed(100)
    moments = intervals(schedule, clock, 4000, 0.001)[6:]
    assert {after - before for before, after in itertools.pairwise(moments)} == {400}


def test_the_save_interval_is_at_most_max_every(tmp_path: Path, clock: list[float]) -> None:
    checkpointer = saver(tmp_path, every="auto", max_every=4, keep=None)
    steps = []
    for step in range(1, 20):
        clock[0] += 1
        if checkpointer.maybe_save(step, {"step": step}):
            steps.append(step)
    assert steps == [4, 8, 12, 16]


@pytest.mark.parametrize("arguments", [{"max_every": "1h"}, {"every": "10m", "max_every": 5}])
def test_a_limit_without_auto_is_rejected(tmp_path: Path, arguments: Any) -> None:
    with pytest.raises(CheckpointError, match=r'is for every="auto"'):
        saver(tmp_path, **arguments)


def test_an_invalid_limit_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"max_every='often' is neither"):
        saver(tmp_path, every="auto", max_every="often")


def test_the_choice_is_an_event_and_a_detail_of_the_job(
    tmp_path: Path, clock: list[float], job: Path
) -> None:
    checkpointer = saver(tmp_path / "checkpoints", every="auto", max_every="5m")
    for step in range(100):
        clock[0] += 10
        checkpointer.maybe_save(step, {"step": step})
    chosen = [event for event in read_events(job) if event["event"] == "save_interval"]
    assert [(event["seconds"] <= 300, event["failures"]) for event in chosen][-1:] == [(True, 0)]
    assert len(chosen) < 4
    details = summarize(read_events(job)).details
    assert details["saves"].startswith("every ")
    assert details["saves"].endswith("; no failure so far")


def test_a_restored_checkpoint_of_the_same_job_is_a_failure(
    tmp_path: Path, clock: list[float], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEMAKER_JOB_NAME", "mine")
    monkeypatch.setenv("TRAINING_JOB_NAME", "mine")
    saver(tmp_path / "checkpoints").save(1, {})
    checkpointer = saver(tmp_path / "checkpoints", every="auto")
    checkpointer.restore()
    for step in range(2, 60):
        clock[0] += 1
        checkpointer.maybe_save(step, {"step": step})
    assert summarize(read_events(job)).details["saves"].endswith("; 1 failure so far")
