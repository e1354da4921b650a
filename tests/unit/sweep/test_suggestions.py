"""Suggestions are those of a controller that was never killed, also after any number of kills."""

from __future__ import annotations

import warnings
from collections.abc import Container
from typing import Any

import pytest

from cloudtrain.contract import FailureClass
from cloudtrain.sweep.plan import SweepPlan, make_plan
from cloudtrain.sweep.space import read_space
from cloudtrain.sweep.suggest import suggestions
from cloudtrain.sweep.trials import COMPLETED, FAILED, PRUNED, Trial

SPACE = {"lr": "log:1e-5..1e-1", "momentum": "0.0..1.0", "depth": "1..8", "kind": "x,y"}


def plan_for(sampler: str, space: Any = None, **more: Any) -> SweepPlan:
    default = {"depth": "1..6", "kind": "x,y,z"} if sampler == "grid" else SPACE
    return make_plan("sweep", space or default, "loss", sampler=sampler, **{"seed": 1, **more})


def run(plan: SweepPlan, count: int, killed_before: Container[int] = ()) -> list[Trial]:
    """The trials of a sweep whose loss is a sum of their parameters, with three steps each."""
    engine, trials = suggestions(plan, []), list[Trial]()
    for number in range(count):
        if number in killed_before:
            engine = suggestions(plan, trials)
        parameters, attributes = engine.ask(number)
        trial = Trial(number, f"t-{number}", parameters, 0.0, attributes=attributes)
        loss = sum(value for value in parameters.values() if not isinstance(value, str))
        for step in (1, 2, 3):
            trial.values[step] = loss / step
            if engine.report(number, step, loss / step):
                trial.pruned_at = step
                break
        trial.status = COMPLETED if trial.pruned_at is None else PRUNED
        if number % 7 == 6:
            trial.status, trial.failure_class = FAILED, str(FailureClass.OUT_OF_MEMORY)
        trial.value, trial.ended_at = loss, 1.0
        trial.attributes |= engine.remembered(number)
        engine.tell(trial)
        trials.append(trial)
    return trials


@pytest.mark.parametrize(
    ("sampler", "pruner"),
    [
        ("tpe", None),
        ("tpe", "hyperband"),
        ("cmaes", "median"),
        ("random", "asha"),
        ("quasi-random", None),
        ("grid", None),
    ],
)
def test_kills_change_nothing(sampler: str, pruner: str | None) -> None:
    plan = plan_for(sampler, pruner=pruner)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole, killed = run(plan, 18), run(plan, 18, killed_before={1, 5, 12, 13})
    assert [trial.parameters for trial in whole] == [trial.parameters for trial in killed]
    assert [trial.pruned_at for trial in whole] == [trial.pruned_at for trial in killed]
    assert all(one.contains(trial.parameters[name]) for trial in whole for name, one in plan.space.items())
    if sampler in ("grid", "quasi-random"):
        assert len({str(trial.parameters) for trial in whole}) == 18, "a configuration came twice"
    if pruner == "asha":
        assert any(trial.pruned_at == 1 for trial in whole)
        assert any(trial.pruned_at is None for trial in whole)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "random", "quasi-random"])
def test_the_seed_decides(sampler: str) -> None:
    first, again, other = (
        [trial.parameters for trial in run(plan_for(sampler, seed=seed), 4)] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_trials_that_run_keep_others_away() -> None:
    """Eight at a time: no trial ends between the suggestions, which still differ."""
    plan = plan_for("tpe")
    trials = run(plan, 12)
    engine = suggestions(plan, trials)
    asked = [engine.ask(number)[0]["lr"] for number in range(12, 20)]
    assert len({*asked}) == 8


def test_memory_is_a_constraint() -> None:
    """Large models run out of memory. The sampler learns where, which it does not from other failures."""
    assert failures_of(FailureClass.OUT_OF_MEMORY) < 0.75 * failures_of(FailureClass.USER_ERROR)


def failures_of(kind: FailureClass) -> int:
    """How many of 40 trials fail, after 20, where deep models are the best, and those of a large size fail."""
    plan = make_plan("sweep", {"width": "0.0..8.0", "depth": "0.0..8.0"}, "accuracy", seed=1)
    engine, failed = suggestions(plan, []), list[bool]()
    for number in range(60):
        parameters, attributes = engine.ask(number)
        depth = parameters["depth"]
        trial = Trial(number, "", parameters, 0.0, status=COMPLETED, value=depth, ended_at=1.0)
        trial.attributes = attributes
        failed.append(depth * parameters["width"] > 8)
        if failed[-1]:
            trial.status, trial.value, trial.failure_class = FAILED, None, str(kind)
        engine.tell(trial)
    return sum(failed[20:])


def test_trials_outside_of_a_changed_space_are_not_learned_from() -> None:
    old = run(plan_for("tpe"), 12)
    plan = plan_for("tpe", {**SPACE, "kind": "y,z", "depth": "4..16"})
    parameters, _ = suggestions(plan, old).ask(12)
    assert all(
        one.contains(parameters[name])
        for name, one in read_space({**SPACE, "kind": "y,z", "depth": "4..16"}).items()
    )
    engine = suggestions(plan, old)
    outside = next(trial for trial in old if trial.parameters["depth"] < 4)
    engine.tell(outside)
    assert engine.report(outside.number, 1, 0.5) is False
