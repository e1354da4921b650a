"""The plan of a sweep, and errors before anything is submitted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cloudtrain import Estimator, InvalidJob, Sweep
from cloudtrain.sweep.plan import SweepPlan, changed, check_metric, make_plan

SPACE = {"lr": "log:1e-5..1e-1"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"metric": ""}, "metric: the sweep has no metric"),
        ({"metric": "quality"}, "metric: whether a greater quality is better"),
        ({"metric": "loss", "goal": "upwards"}, "goal: there is no goal 'upwards'"),
        ({"trials": 0}, "trials: 0 is not a whole number from 1"),
        ({"trials": 2.5}, "trials: 2.5 is not a whole number"),
        ({"parallel": -1}, "parallel: -1"),
        ({"seed": -1}, "seed: -1"),
        ({"trials_per_host": 0}, "trials_per_host: 0"),
        ({"max_cost": 1e300}, "max_cost: 1e+300 is not a number above 0, up to 1,000,000,000,000"),
        ({"max_cost": float("nan")}, "max_cost: nan is not a number above 0"),
        ({"sampler": "magic"}, "sampler: there is no sampler 'magic'"),
        ({"pruner": "magic"}, "pruner: there is no pruner 'magic'"),
        ({"sampler": "grid"}, "search lr: a grid needs a list"),
        ({"name": "a" * 60}, "is too long"),
        ({"name": "a_b"}, "only letters, digits"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], problem: str) -> None:
    given = {"name": "sweep", "space": SPACE, "metric": "loss", **arguments}
    with pytest.raises(InvalidJob) as error:
        make_plan(**given)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("metric", "goal"),
    [("val:accuracy", "maximize"), ("val_loss", "minimize"), ("eval/f1", "maximize"), ("rmse", "minimize")],
)
def test_the_name_of_a_metric_implies_the_goal(metric: str, goal: str) -> None:
    assert make_plan("sweep", SPACE, metric).goal == goal


def test_a_plan_is_stored_whole() -> None:
    plan = replace(
        make_plan("sweep", {**SPACE, "depth": [2, 4]}, "loss", trials=7, pruner="asha"), fields={"a": 1}
    )
    assert SweepPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_a_grid_has_as_many_trials_as_points() -> None:
    space = {"a": [1, 2], "b": "x,y,z"}
    assert make_plan("sweep", space, "loss", sampler="grid").trials == 6
    assert make_plan("sweep", space, "loss", sampler="grid", trials=100).trials == 6
    assert changed(make_plan("sweep", space, "loss", sampler="grid", trials=4), more=9).trials == 6


def test_a_metric_that_nothing_reports_is_refused() -> None:
    definitions = [{"Name": "val:acuracy", "Regex": "a=(.*)"}]
    plan = replace(make_plan("sweep", SPACE, "val:accuracy"), fields={"metric_definitions": definitions})
    with pytest.raises(InvalidJob, match="nothing reports val:accuracy") as error:
        check_metric(plan, "print('a=1')")
    assert "Did you mean 'val:acuracy'?" in error.value.hint
    check_metric(plan, "cloudtrain.log({'val:accuracy': 1})")
    check_metric(replace(plan, fields={}), "")


def test_objects_of_this_process_are_refused() -> None:
    from cloudtrain.testing.fake import FakePlatform

    with pytest.raises(InvalidJob, match="its platform or session is an object"):
        Sweep(Estimator("train.py", platform=FakePlatform()), SPACE, "loss")
