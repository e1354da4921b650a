"""When `maybe_save` saves, and which checkpoint is best."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from checkpoint_trees import saver

from cloudtrain.environment import _preemption
from cloudtrain.errors import CheckpointError


@pytest.fixture(autouse=True)
def _no_signals_afterwards() -> Iterator[None]:
    yield
    _preemption._reset()  # `maybe_save` handles them


def saved(folder: Path, every: Any, steps: list[int]) -> list[int]:
    checkpointer = saver(folder, every=every, keep=None)
    return [step for step in steps if checkpointer.maybe_save(step, {"step": step})]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (range(1, 11), [3, 6, 9]),
        (range(9), [0, 3, 6]),
        (range(2, 23, 4), [6, 10, 14, 18, 22]),
        ([1, 2, 13, 14, 15], [13, 15]),
    ],
)
def test_every_number_of_steps(tmp_path: Path, steps: Any, expected: list[int]) -> None:
    assert saved(tmp_path, 3, list(steps)) == expected


def test_steps_are_counted_from_a_restored_one(tmp_path: Path) -> None:
    saver(tmp_path).save(4, {})
    resumed = saver(tmp_path, every=3)
    resumed.restore()
    assert [step for step in range(5, 13) if resumed.maybe_save(step, {})] == [6, 9, 12]


@pytest.mark.parametrize("every", ["10m", timedelta(minutes=10)])
def test_every_period(tmp_path: Path, every: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer = saver(tmp_path, every=every)
    assert not checkpointer.maybe_save(1, {})
    monkeypatch.setattr("cloudtrain.observe.heartbeat._last", 0.0)  # restored: it would be in the future
    monotonic = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: monotonic() + 600)
    assert checkpointer.maybe_save(2, {})
    assert not checkpointer.maybe_save(3, {})


def test_a_period_that_has_not_passed_is_not_due(tmp_path: Path) -> None:
    for every in ("10m", "1.5h", None):
        assert saved(tmp_path, every, [1, 2, 3]) == []


@pytest.mark.parametrize("every", [0, -1, True, "10", "m", "10 minutes", "0s", timedelta(0), 1.5])
def test_invalid_periods_are_rejected(tmp_path: Path, every: Any) -> None:
    with pytest.raises(
        CheckpointError, match=r"is neither a number of steps nor a time\n  Give steps as 500"
    ):
        saver(tmp_path, every=every)


def test_the_state_function_is_called_only_to_save(tmp_path: Path) -> None:
    made = []
    checkpointer = saver(tmp_path, every=2)
    for step in range(1, 6):
        checkpointer.maybe_save(step, lambda step=step: made.append(step))
    assert made == [2, 4]


def test_once_when_the_job_is_about_to_be_stopped(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from cloudtrain.checkpoint import Checkpointer

        checkpointer = Checkpointer(sys.argv[1], every=100)
        for step in range(1, 6):
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            if checkpointer.maybe_save(step, lambda: {"step": step}):
                print(step)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert saver(tmp_path).steps() == [3]


LOSSES = {1: 0.5, 2: 0.2, 3: 0.9, 4: float("nan"), 5: 0.2, 6: 0.4, 7: 0.3}


@pytest.mark.parametrize(
    ("best", "expected", "steps"),
    [("loss", 5, [5, 6, 7]), (("loss", "min"), 5, [5, 6, 7]), (("loss", "max"), 3, [3, 6, 7])],
)
def test_the_best_is_kept_and_restored(tmp_path: Path, best: Any, expected: int, steps: list[int]) -> None:
    checkpointer = saver(tmp_path, keep=2, best=best)
    assert checkpointer.restore("best") is None
    for step, loss in LOSSES.items():
        checkpointer.save(step, {"step": step}, {"loss": loss})
    assert checkpointer.steps() == steps
    checkpoint = saver(tmp_path, best=best).restore("best")
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.state) == (expected, {"step": expected})


def test_the_next_best_if_the_best_is_damaged(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path, keep=None, best="loss")
    for step, loss in LOSSES.items():
        checkpointer.save(step, {"step": step}, {"loss": loss})
    for path in (tmp_path / "step-000000000005").rglob("tree.json"):
        path.unlink()
    with pytest.warns(RuntimeWarning, match="checkpoint 5 in"):
        checkpoint = checkpointer.restore("best")
    assert checkpoint is not None
    assert checkpoint.step == 2


def test_best_needs_a_metric(tmp_path: Path) -> None:
    checkpointer = saver(tmp_path, best="accuracy")
    checkpointer.save(1, {}, {"loss": 1})
    with pytest.raises(CheckpointError, match="has the metric 'accuracy'"):
        checkpointer.restore("best")
    with pytest.raises(CheckpointError, match="needs a metric to compare"):
        saver(tmp_path).restore("best")


def test_sigterm_ends_a_script_that_only_saves(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from cloudtrain.checkpoint import Checkpointer

        Checkpointer(sys.argv[1], asynchronous=False).save(1, {})
        os.kill(os.getpid(), signal.SIGTERM)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    assert subprocess.run(command, timeout=240).returncode == -signal.SIGTERM


class TestTheEnd:
    """The saves of `close`."""

    @pytest.mark.parametrize("every", [100, "10m", None])
    @pytest.mark.parametrize("lazy", [True, False])
    def test_a_run_that_is_shorter_than_the_schedule_leaves_its_last_step(
        self, tmp_path: Path, every: Any, lazy: bool
    ) -> None:
        with saver(tmp_path, every=every) as checkpointer:
            for step in range(1, 4):
                state = {"step": step}
                assert not checkpointer.maybe_save(step, (lambda: state) if lazy else state, {"loss": step})  # noqa: B023
        checkpoint = saver(tmp_path).restore()
        assert checkpoint
        assert (checkpoint.step, checkpoint.state, checkpoint.metrics) == (3, {"step": 3}, {"loss": 3})

    def test_a_step_that_was_saved_is_not_saved_again(self, tmp_path: Path) -> None:
        made: list[int] = []
        with saver(tmp_path, every=2, keep=None) as checkpointer:
            for step in range(1, 5):
                checkpointer.maybe_save(step, lambda step=step: made.append(step))
        assert (made, saver(tmp_path).steps()) == ([2, 4], [2, 4])
        with saver(tmp_path / "explicit", every=100) as checkpointer:
            checkpointer.maybe_save(1, {})
            checkpointer.save(1, {})
        assert saver(tmp_path / "explicit").steps() == [1]

    def test_nothing_is_saved_after_an_exception(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="x"), saver(tmp_path, every=100) as checkpointer:
            checkpointer.maybe_save(1, {})
            raise ValueError("x")
        assert saver(tmp_path).steps() == []

    def test_save_at_end_can_be_switched_off(self, tmp_path: Path) -> None:
        with saver(tmp_path, every=100, save_at_end=False) as checkpointer:
            checkpointer.maybe_save(1, {})
        assert saver(tmp_path).steps() == []

    def test_closing_twice_saves_once(self, tmp_path: Path) -> None:
        checkpointer = saver(tmp_path, every=100)
        checkpointer.maybe_save(1, {})
        checkpointer.close()
        checkpointer.close()
        assert saver(tmp_path).steps() == [1]
