"""Tuning jobs: what is refused, what is searched for, the names and tables; the requests are in test_golden."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import (
    CategoricalParameter,
    ContinuousParameter,
    Estimator,
    HyperparameterTuner,
    IntegerParameter,
    InvalidJob,
    PyTorch,
    WarmStartConfig,
)
from cloudtrain.errors import CloudtrainError, NotSupported
from cloudtrain.tuning.job import progress, training_job_row

RANGES = {"lr": ContinuousParameter(0.001, 0.1)}
ROLE = "arn:aws:iam::123456789012:role/Train"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"


@pytest.fixture
def script(tmp_path: Path, aws: None) -> str:
    (tmp_path / "train.py").write_text("print('training')")
    return str(tmp_path / "train.py")


def plain(**arguments: Any) -> Estimator:
    return Estimator(image_uri=IMAGE, role=ROLE, instance_type="ml.m5.xlarge", **arguments)


def torch(script: str, **arguments: Any) -> Estimator:
    versions = {"framework_version": "2.5.1", "py_version": "py311"}
    return PyTorch(script, **versions, role=ROLE, instance_type="ml.m5.xlarge", **arguments)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ContinuousParameter(2, 1), "min_value is greater than max_value"),
        (lambda: ContinuousParameter("a", 1), "min_value and max_value must be numbers"),  # type: ignore[arg-type]
        (lambda: ContinuousParameter(1, 2, "Log"), "unknown scaling_type 'Log'"),
        (lambda: IntegerParameter(0.5, 2), "not integers"),
        (lambda: CategoricalParameter([]), "values is empty"),
        (lambda: WarmStartConfig("Transfer", {"a"}), "warm_start_type: 'Transfer' is unknown"),
        (lambda: WarmStartConfig("TransferLearning", set()), "parents: a warm start needs"),
        (lambda: HyperparameterTuner(plain(), "loss", {}), "there is nothing to tune"),
        (
            lambda: HyperparameterTuner(plain(), "loss", {"lr": 1}),
            "hyperparameter_ranges.lr: 1 is not a range",
        ),  # type: ignore[dict-item]
        (
            lambda: HyperparameterTuner(plain(), "loss", RANGES, strategy="Bayes"),
            "strategy: unknown value 'Bayes'\n  Did you mean 'Bayesian'?",
        ),
        (lambda: HyperparameterTuner(object(), "loss", RANGES), "estimator: expected a cloudtrain.Estimator"),  # type: ignore[arg-type]
        (
            lambda: HyperparameterTuner.create({"a": plain()}, {"a": "loss"}, {}),
            "hyperparameter_ranges_dict: has no entry for the estimator 'a'",
        ),
        (
            lambda: HyperparameterTuner.create({"a": plain()}, {"a": "loss", "b": "x"}, {"a": RANGES}),
            "objective_metric_name_dict: there is no estimator 'b'",
        ),
    ],
)
def test_invalid_searches_are_refused_immediately(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        make()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("estimator", "says"),
    [
        (plain(arguments=["fit"]), "arguments: tuning jobs of SageMaker use the image's toolkit"),
        (plain(runtime="cloudtrain"), 'runtime: tuning jobs of SageMaker cannot use "cloudtrain"'),
        (
            plain(container_entry_point=["x"]),
            "container_entry_point: not supported by SageMaker's tuning jobs",
        ),
    ],
)
def test_an_estimator_that_cannot_be_tuned_is_refused(estimator: Estimator, says: str, aws: None) -> None:
    with pytest.raises(InvalidJob) as caught:
        HyperparameterTuner(estimator, "loss", RANGES).prepare()
    assert says in str(caught.value)


def test_what_a_tuning_job_has_no_field_for_is_left_out_with_a_warning(aws: None) -> None:
    tuner = HyperparameterTuner(plain(enable_remote_debug=True), "loss", RANGES)
    with pytest.warns(UserWarning, match="enable_remote_debug"):
        assert "RemoteDebugConfig" not in tuner.prepare().body["TrainingJobDefinition"]


def test_secrets_are_not_shown(aws: None) -> None:
    tuner = HyperparameterTuner(plain(environment={"HF_TOKEN": "s3cret", "A": "1"}), "loss", RANGES)
    definition = tuner.prepare().body["TrainingJobDefinition"]
    assert definition["Environment"]["HF_TOKEN"] == "***"
    assert definition["Environment"]["A"] == "1"


def test_metrics_are_the_estimators_unless_the_tuner_has_some(aws: None) -> None:
    own, other = ([{"Name": name, "Regex": f"{name}=(.*)"}] for name in ("loss", "other"))
    for given, wanted in ((None, own), (other, other)):
        tuner = HyperparameterTuner(plain(metric_definitions=own), "loss", RANGES, given)
        algorithm = tuner.prepare().body["TrainingJobDefinition"]["AlgorithmSpecification"]
        assert algorithm["MetricDefinitions"] == wanted


def test_autotune_does_not_change_hyperparameters_of_the_toolkit(script: str) -> None:
    estimator = torch(script, hyperparameters={"epochs": 3, "lr": 0.1, "width": 8})
    tuner = HyperparameterTuner(
        estimator, "loss", None, autotune=True, hyperparameters_to_keep_static=["epochs"]
    )
    body = tuner.prepare().body
    auto = body["HyperParameterTuningJobConfig"]["ParameterRanges"]["AutoParameters"]
    assert auto == [{"Name": "lr", "ValueHint": "0.1"}, {"Name": "width", "ValueHint": "8"}]
    static = body["TrainingJobDefinition"]["StaticHyperParameters"]
    assert static["epochs"] == "3"
    assert static["sagemaker_program"] == '"train.py"'


def test_instance_groups_are_in_the_field_that_supports_them(aws: None) -> None:
    groups = [{"instance_group_name": "g", "instance_type": "ml.m5.xlarge", "instance_count": 2}]
    estimator = Estimator(image_uri=IMAGE, role=ROLE, instance_groups=groups)
    definition = HyperparameterTuner(estimator, "loss", RANGES).prepare().body["TrainingJobDefinition"]
    assert definition["ResourceConfig"]["InstanceGroups"][0]["InstanceGroupName"] == "g"
    assert "HyperParameterTuningResourceConfig" not in definition


def test_names_are_short_readable_and_unique(script: str) -> None:
    tuner = HyperparameterTuner(torch(script), "loss", RANGES)
    names = {tuner.prepare().job_name for _ in range(8)}
    assert len(names) == 8
    assert all(name.startswith("pytorch-tra") and len(name) <= 32 for name in names)
    with pytest.raises(InvalidJob, match="1 to 32 letters"):
        tuner.prepare(job_name="a" * 33)


def test_nothing_is_requested_before_fit() -> None:
    with pytest.raises(CloudtrainError, match="has not started a tuning job yet"):
        HyperparameterTuner(plain(), "loss", RANGES).best_training_job()


def test_a_training_job_is_a_row() -> None:
    start, end = (datetime(2026, 11, 21, 12, minute, tzinfo=timezone.utc) for minute in (0, 5))
    summary = {
        "TrainingJobName": "tune-001",
        "TrainingJobStatus": "Completed",
        "TunedHyperParameters": {"lr": "0.01", "bs": "8", "opt": '"adam"', "kind": "x"},
        "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": 0.5},
        "TrainingStartTime": start,
        "TrainingEndTime": end,
    }
    assert training_job_row(summary) == {
        "lr": 0.01,
        "bs": 8,
        "opt": "adam",
        "kind": "x",
        "TrainingJobName": "tune-001",
        "TrainingJobStatus": "Completed",
        "FinalObjectiveValue": 0.5,
        "TrainingStartTime": start,
        "TrainingEndTime": end,
        "TrainingElapsedTimeSeconds": 300.0,
    }


def test_progress_names_the_best() -> None:
    answer = {
        "HyperParameterTuningJobStatus": "InProgress",
        "TrainingJobStatusCounters": {"Completed": 2, "NonRetryableError": 1, "InProgress": 3},
        "BestTrainingJob": {
            "TrainingJobName": "tune-002",
            "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": 0.25},
        },
    }
    assert progress(answer) == "InProgress: 3 training jobs have ended; the best: loss 0.25 of tune-002"


def test_the_arguments_are_attributes(aws: None) -> None:
    estimator = plain()
    tuner = HyperparameterTuner(
        estimator, "loss", RANGES, max_jobs=3, objective_type="Minimize", tags={"a": "b"}
    )
    assert (tuner.estimator, tuner.objective_metric_name, tuner.metric_definitions) == (
        estimator,
        "loss",
        None,
    )
    assert (tuner.max_jobs, tuner.max_parallel_jobs, tuner.strategy, tuner.tags) == (
        3,
        1,
        "Bayesian",
        {"a": "b"},
    )
    assert tuner.estimator_dict is tuner.hyperparameter_ranges_dict() is tuner._current_job_name is None
    [found] = tuner.hyperparameter_ranges()["ContinuousParameterRanges"]
    assert found["Name"] == "lr"
    tuner.max_jobs, tuner.metric_definitions = 5, [{"Name": "loss", "Regex": "loss=(.*)"}]
    tuner.base_tuning_job_name = "mine"
    tuner.estimator.set_hyperparameters(epochs=3)
    assert tuner.static_hyperparameters is None
    body = tuner.prepare().body
    assert tuner.static_hyperparameters == {"epochs": "3"}
    assert body["HyperParameterTuningJobName"].startswith("mine-")
    assert body["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"] == 5
    definition = body["TrainingJobDefinition"]["AlgorithmSpecification"]
    assert definition["MetricDefinitions"] == [{"Name": "loss", "Regex": "loss=(.*)"}]
    assert copy.deepcopy(tuner).max_jobs == 5
    assert not hasattr(tuner, "max_jbos")
    with pytest.raises(NotSupported, match="delete_endpoint"):
        tuner.delete_endpoint()


def test_the_attributes_of_several_estimators_are_dicts(aws: None) -> None:
    tuner = HyperparameterTuner.create({"a": plain()}, {"a": "loss"}, {"a": RANGES})
    assert (tuner.objective_metric_name, tuner.objective_metric_name_dict) == (None, {"a": "loss"})
    assert tuner.hyperparameter_ranges() is None
    assert tuner.hyperparameter_ranges_dict().keys() == {"a"}
    tuner.prepare()
    assert (tuner.static_hyperparameters, tuner.static_hyperparameters_dict.keys()) == (None, {"a"})


def test_only_estimators_of_algorithms_have_a_batch_size(aws: None) -> None:
    tuner = HyperparameterTuner(plain(), "loss", RANGES)
    with pytest.raises(InvalidJob, match="Estimator has no argument 'mini_batch_size'"):
        tuner.fit(mini_batch_size=3)
    with pytest.raises(InvalidJob, match="Estimator has no argument 'log'"):
        tuner.fit(log=True)
