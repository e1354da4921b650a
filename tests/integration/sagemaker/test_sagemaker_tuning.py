"""`HyperparameterTuner.fit` on SageMaker: what it starts, how it goes, what it has found."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

import pytest
from scripted_tuning import ScriptedTuning
from service import Lost, SageMakerService, ServiceError

from cloudtrain import (
    CategoricalParameter,
    ContinuousParameter,
    Estimator,
    HyperparameterTuner,
    IntegerParameter,
    PyTorch,
    TrainingFailed,
)
from cloudtrain.errors import CloudtrainError, JobExists, JobNotFound
from cloudtrain.sagemaker import HyperparameterTuningJobAnalytics
from cloudtrain.tuning import (
    HyperbandStrategyConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
)


@pytest.fixture
def tuning(service: SageMakerService) -> ScriptedTuning:
    scripted = ScriptedTuning()
    scripted.install(service)
    return scripted


@pytest.fixture
def tuner(tuning: ScriptedTuning) -> HyperparameterTuner:
    estimator = Estimator(
        image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
        role="arn:aws:iam::123456789012:role/Train",
        instance_type="ml.m5.xlarge",
        output_path="s3://bucket/out",
        environment={"HF_TOKEN": "s3cret"},
        hyperparameters={"epochs": 3},
    )
    ranges = {"lr": ContinuousParameter(0.001, 0.1), "opt": CategoricalParameter(["sgd", "adam"])}
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    return HyperparameterTuner(estimator, "loss", ranges, metrics, objective_type="Minimize", max_jobs=3)


def test_fit_prints_each_end_and_finds_the_best(
    tuner: HyperparameterTuner,
    tuning: ScriptedTuning,
    service: SageMakerService,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def search() -> None:
        deadline = time.monotonic() + 90
        while service.count("DescribeHyperParameterTuningJob") < 2:  # the first answer is complete then
            assert time.monotonic() < deadline
            time.sleep(0.05)
        tuning.run("Completed", 0.5, lr="0.01", opt="sgd")
        tuning.run("Completed", 0.25, lr="0.02", opt="adam")
        tuning.run("Failed", lr="0.1", opt="sgd")
        tuning.status = "Completed"

    tuning.on_create = threading.Thread(target=search).start
    job = tuner.fit(job_name="tune")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("InProgress: ")
    assert lines[-1] == "Completed: 3 training jobs have ended; the best: loss 0.25 of tune-002"
    assert len(set(lines)) == len(lines)
    assert job.best_training_job() == tuner.best_training_job() == "tune-002"
    rows = tuner.analytics().rows()
    assert [row["FinalObjectiveValue"] for row in rows] == [0.5, 0.25, None]
    assert [row["lr"] for row in rows] == [0.01, 0.02, 0.1]
    best = tuner.best_estimator()
    assert best.hyperparameters() == {"epochs": 3, "lr": 0.02, "opt": "adam"}
    assert best.latest_training_job is not None
    assert best.latest_training_job.name == "tune-002"


def test_secrets_are_sent(
    tuner: HyperparameterTuner, tuning: ScriptedTuning, service: SageMakerService
) -> None:
    tuner.fit(job_name="tune", wait=False)
    assert tuning.requests["tune"]["TrainingJobDefinition"]["Environment"]["HF_TOKEN"] == "s3cret"
    assert [name for name, _ in service.calls] == ["CreateHyperParameterTuningJob"]


def test_a_refusal_shows_no_secret(tuner: HyperparameterTuner, service: SageMakerService) -> None:
    message = "Value '{HF_TOKEN=s3cret}' at 'environment' failed to satisfy constraint: Member must be short"
    service.fail("CreateHyperParameterTuningJob", ServiceError("ValidationException", message))
    with pytest.raises(CloudtrainError, match=r"HF_TOKEN=\*\*\*") as caught:
        tuner.fit(job_name="tune", wait=False)
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def test_a_failed_search_has_a_reason(tuner: HyperparameterTuner, tuning: ScriptedTuning) -> None:
    tuner.fit(job_name="tune", wait=False)
    tuning.status, tuning.failure = "Failed", "All training jobs failed."
    with pytest.raises(TrainingFailed, match="All training jobs failed"):
        tuner.wait()


def test_a_repeated_request_starts_no_second_search(
    tuner: HyperparameterTuner, tuning: ScriptedTuning, service: SageMakerService
) -> None:
    service.fail("CreateHyperParameterTuningJob", Lost())
    tuner.fit(job_name="tune", wait=False)
    assert len(tuning.requests) == 1
    other = HyperparameterTuner(
        Estimator(
            image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/other:1",
            role="arn:aws:iam::123456789012:role/Train",
            instance_type="ml.m5.xlarge",
            output_path="s3://bucket/out",
        ),
        "loss",
        {"lr": ContinuousParameter(0, 1)},
    )
    with pytest.raises(JobExists, match="already a tuning job tune"):
        other.fit(job_name="tune", wait=False)


def test_attach_and_stop(tuner: HyperparameterTuner, tuning: ScriptedTuning) -> None:
    tuner.fit(job_name="tune", wait=False)
    job = HyperparameterTuner.attach("tune")
    with pytest.raises(CloudtrainError, match="has no best training job"):
        job.best_training_job()
    job.stop_tuning_job()
    assert job.describe()["HyperParameterTuningJobStatus"] == "Stopped"
    job.stop_tuning_job()  # it has ended: nothing to do
    with pytest.raises(JobNotFound, match="no tuning job other"):
        HyperparameterTuner.attach("other")


def test_an_attached_tuner_continues_the_search(tuner: HyperparameterTuner, tuning: ScriptedTuning) -> None:
    tuner.fit(job_name="tune", wait=False)
    tuning.run("Completed", 0.25, lr="0.02", opt="adam")
    attached = HyperparameterTuner.attach("tune")
    assert attached.best_estimator().hyperparameters() == {"epochs": 3, "lr": 0.02, "opt": "adam"}
    attached.identical_dataset_and_algorithm_tuner().fit(job_name="again", wait=False)
    assert "WarmStartConfig" in tuning.requests["again"]
    assert _without_name(tuning.requests["again"]) == _without_name(tuning.requests["tune"])


def test_an_attached_tuner_has_the_recorded_classes(tuning: ScriptedTuning) -> None:
    torch = PyTorch(
        entry_point="train.py",
        source_dir="s3://bucket/source.tar.gz",
        role="arn:aws:iam::123456789012:role/Train",
        instance_type="ml.m5.xlarge",
        instance_count=2,
        framework_version="2.5",
        py_version="py311",
        output_path="s3://bucket/out",
        hyperparameters={"layers": [64, 32]},
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    )
    searched = HyperparameterTuner.create(
        {"a": torch, "b": torch},
        {"a": "loss", "b": "loss"},
        {
            "a": {"opt": CategoricalParameter(["sgd", "adam"])},
            "b": {"depth": IntegerParameter(1, 4, "Linear")},
        },
        strategy="Hyperband",
        strategy_config=StrategyConfig(HyperbandStrategyConfig(9, 1)),
        completion_criteria_config=TuningJobCompletionCriteriaConfig(5, True, 0.1),
        random_seed=1,
        max_jobs=6,
    )
    searched.fit(job_name="tune", wait=False)
    attached = HyperparameterTuner.attach("tune")
    assert all(isinstance(estimator, PyTorch) for estimator in attached.estimator_dict.values())
    attached.fit(job_name="again", wait=False)
    first, again = (dict(tuning.requests[name]) for name in ("tune", "again"))
    assert again["HyperParameterTuningJobConfig"] == first["HyperParameterTuningJobConfig"]
    for definition in (*first["TrainingJobDefinitions"], *again["TrainingJobDefinitions"]):
        assert definition["StaticHyperParameters"].pop("sagemaker_job_name") in ('"tune"', '"again"')
    assert again["TrainingJobDefinitions"] == first["TrainingJobDefinitions"]


def _without_name(request: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("HyperParameterTuningJobName", "WarmStartConfig")
    return {name: value for name, value in request.items() if name not in left_out}


def test_analytics_by_the_name_of_the_tuning_job(tuner: HyperparameterTuner, tuning: ScriptedTuning) -> None:
    tuner.fit(job_name="tune", wait=False)
    analytics = HyperparameterTuningJobAnalytics("tune")
    assert analytics.name == "tune"
    assert analytics.training_job_summaries() == tuner.analytics().training_job_summaries()
    assert analytics.tuning_ranges["lr"]["Name"] == "lr"
    assert analytics.description()["HyperParameterTuningJobName"] == "tune"


def test_a_warm_start_begins_with_what_the_search_has_found(
    tuner: HyperparameterTuner, tuning: ScriptedTuning
) -> None:
    tuner.fit(job_name="tune", wait=False)
    again = tuner.identical_dataset_and_algorithm_tuner({"older"})
    again.fit(job_name="again", wait=False)
    assert tuning.requests["again"]["WarmStartConfig"] == {
        "WarmStartType": "IdenticalDataAndAlgorithm",
        "ParentHyperParameterTuningJobs": [
            {"HyperParameterTuningJobName": "older"},
            {"HyperParameterTuningJobName": "tune"},
        ],
    }
    first, second = (tuning.requests[name]["HyperParameterTuningJobConfig"] for name in ("tune", "again"))
    assert first == second


def test_a_refusal_of_sagemaker_is_raised(tuner: HyperparameterTuner, service: SageMakerService) -> None:
    service.fail("CreateHyperParameterTuningJob", ServiceError("ResourceLimitExceeded", "The limit is 0"))
    with pytest.raises(CloudtrainError, match="tuning job tune cannot be started: ResourceLimitExceeded"):
        tuner.fit(job_name="tune", wait=False)
    assert tuner.latest_tuning_job is None
