"""`HyperparameterTuner` on other platforms than SageMaker: what its arguments mean for a sweep, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudtrain import (
    CategoricalParameter,
    ContinuousParameter,
    Estimator,
    HyperbandStrategyConfig,
    HyperparameterTuner,
    IntegerParameter,
    InvalidJob,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
)
from cloudtrain.sweep.plan import SweepPlan, make_plan
from cloudtrain.sweep.space import Choices, Range
from cloudtrain.tuning.sweep import sweep_of

RANGES = {"lr": ContinuousParameter(1e-5, 1e-1, "Logarithmic")}


@pytest.fixture
def estimator(tmp_path: Path) -> Estimator:
    (tmp_path / "train.py").write_text("print('loss: 1')")
    return Estimator(
        str(tmp_path / "train.py"), instance_type="local", hyperparameters={"epochs": 3}, tags={"a": "1"}
    )


def plan_of(tuner: HyperparameterTuner) -> tuple[SweepPlan, dict[str, Any]]:
    sweep = sweep_of(tuner._candidates, tuner._search, "tune", None)
    return make_plan("tune", sweep.space, sweep.metric, **sweep._options), sweep.estimator.fields


def test_ranges_become_a_space(estimator: Estimator) -> None:
    ranges = {
        **RANGES,
        "size": IntegerParameter(8, 64, "Logarithmic"),
        "depth": IntegerParameter(1.0, 4.0),
        "momentum": ContinuousParameter(0, 1),
        "kind": CategoricalParameter(["sgd", "adam", 3]),
        "fixed": ContinuousParameter(0.5, 0.5),
        "only": CategoricalParameter(["x"]),
    }
    metrics = [{"Name": "loss", "Regex": "loss: (.*)"}]
    plan, fields = plan_of(HyperparameterTuner(estimator, "loss", ranges, metrics, tags={"b": "2"}))
    assert plan.space == {
        "lr": Range(1e-5, 1e-1, is_log=True),
        "size": Range(8, 64, is_log=True, is_whole=True),
        "depth": Range(1, 4, is_whole=True),
        "momentum": Range(0.0, 1.0),
        "kind": Choices(("sgd", "adam", "3")),
    }
    assert fields["hyperparameters"] == {"epochs": 3, "fixed": 0.5, "only": "x"}
    assert fields["metric_definitions"] == metrics
    assert fields["tags"] == [{"Key": "b", "Value": "2"}, {"Key": "a", "Value": "1"}]
    assert estimator.fields["hyperparameters"] == {"epochs": 3}, "the estimator itself has changed"


def test_strategies_become_samplers_and_pruners(estimator: Estimator) -> None:
    found = {}
    for name, arguments in {
        "default": {},
        "random": {"strategy": "Random", "early_stopping_type": "Auto", "random_seed": 7},
        "hyperband": {
            "strategy": "Hyperband",
            "strategy_config": StrategyConfig(HyperbandStrategyConfig(9, 3)),
        },
        "many": {"max_jobs": 9, "max_parallel_jobs": 4, "objective_type": "Minimize"},
    }.items():
        plan, _ = plan_of(HyperparameterTuner(estimator, "loss", RANGES, **arguments))  # type: ignore[arg-type]
        found[name] = plan
    assert [(plan.sampler, plan.pruner, plan.prune_after) for plan in found.values()] == [
        ("tpe", None, 1), ("random", "median", 1), ("tpe", "hyperband", 3), ("tpe", None, 1),
    ]  # fmt: skip
    assert (found["default"].trials, found["default"].goal, found["random"].seed) == (1, "maximize", 7)
    assert (found["many"].trials, found["many"].parallel, found["many"].goal) == (9, 4, "minimize")
    grid = {"kind": CategoricalParameter(["a", "b"]), "depth": IntegerParameter(1, 3)}
    plan, _ = plan_of(HyperparameterTuner(estimator, "loss", grid, strategy="Grid"))
    assert (plan.sampler, plan.trials) == ("grid", 6)


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        ({"max_runtime_in_seconds": 60}, "max_runtime_in_seconds: only tuning jobs of SageMaker", "max_run"),
        ({"autotune": True}, "autotune: only tuning jobs", "Give a range"),
        (
            {"completion_criteria_config": TuningJobCompletionCriteriaConfig(3)},
            "completion_criteria_config: only",
            "stop_tuning_job()",
        ),
        (
            {"warm_start_config": WarmStartConfig("TransferLearning", {"old"})},
            "warm_start_config: only",
            "cloudtrain sweep continue",
        ),
        (
            {"hyperparameter_ranges": {"x": ContinuousParameter(0.1, 0.9, "ReverseLogarithmic")}},
            "search x: only SageMaker searches with the scale ReverseLogarithmic",
            "Search for 1 - x",
        ),
        ({"hyperparameter_ranges": {"x": ContinuousParameter(1, 1)}}, "the space of the sweep is empty", ""),
        ({"strategy": "Grid"}, "search lr: a grid needs a list of values", ""),
    ],
)
def test_what_only_sagemaker_has(
    estimator: Estimator, arguments: dict[str, Any], problem: str, hint: str
) -> None:
    tuner = HyperparameterTuner(estimator, "loss", **{"hyperparameter_ranges": RANGES, **arguments})
    with pytest.raises(InvalidJob) as error:
        tuner.fit(job_name="tune")
    assert problem in error.value.message
    assert hint in (error.value.hint or "")


def test_several_estimators_are_refused(estimator: Estimator) -> None:
    both = {"a": estimator, "b": Estimator("train.py", instance_type="ml.m5.xlarge")}
    tuner = HyperparameterTuner.create(both, dict.fromkeys(both, "loss"), dict.fromkeys(both, RANGES))
    with pytest.raises(InvalidJob, match="a search over several estimators: only tuning jobs of SageMaker"):
        tuner.prepare()
