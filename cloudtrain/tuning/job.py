"""A handle on a tuning job, with its progress, its results, and the arguments of its tuner."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cloudtrain import frameworks
from cloudtrain._sdk.attach import described_arguments
from cloudtrain.contract import FailureClass, FailureReport, decode_hyperparameters
from cloudtrain.errors import CloudtrainError, TrainingFailed
from cloudtrain.estimator import Estimator
from cloudtrain.platforms import Platform
from cloudtrain.platforms.sagemaker import SageMakerPlatform, tuning
from cloudtrain.platforms.sagemaker.training_job import TUNING
from cloudtrain.platforms.sagemaker.tuning import ESTIMATORS
from cloudtrain.training_analytics import to_dataframe
from cloudtrain.tuning._request import Candidate, base_of
from cloudtrain.tuning.configuration import (
    InstanceConfig,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    ranges_of,
)

POLL_SECONDS = 0.5
LONGEST_POLL_SECONDS = 30.0
FINAL = ("Completed", "Failed", "Stopped", "Deleting", "DeleteFailed")


class TuningJob:
    """A handle on one tuning job. It holds no state: every method queries SageMaker."""

    platform: Platform
    """The platform on which its training jobs run."""

    def __init__(self, name: str, platform: SageMakerPlatform) -> None:
        self.name = name
        self.platform = platform
        self._aws = platform.aws

    @property
    def job_name(self) -> str:
        """The name of the job, under its name in the SageMaker SDK."""
        return self.name

    @classmethod
    def attach(cls, tuning_job_name: str, sagemaker_session: Any = None) -> TuningJob:
        """The tuning job with this name, started by this user or another. Raises JobNotFound."""
        job = cls(tuning_job_name, SageMakerPlatform(sagemaker_session))
        job.describe()
        return job

    def describe(self) -> dict[str, Any]:
        """SageMaker's response to DescribeHyperParameterTuningJob."""
        return TUNING.describe(self.name, self._aws)

    def stop_tuning_job(self) -> None:
        """Stop the tuning job and its training jobs. Returns immediately."""
        TUNING.stop(self.name, self._aws)

    def wait(
        self,
        on_progress: Callable[[str], object] | None = None,
    ) -> TuningJob:
        """Wait until the search has ended, and return the job.

        Args:
            on_progress: called with a line of text whenever a training job ends.

        Raises:
            TrainingFailed: the search failed, for example because none of its training jobs completed.
        """
        pause, last = POLL_SECONDS, ""
        while True:
            answer = self.describe()
            line = progress(answer)
            if on_progress and line != last:
                on_progress(line)
                last = line
            if answer["HyperParameterTuningJobStatus"] in FINAL:
                break
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_SECONDS)
        if answer["HyperParameterTuningJobStatus"] == "Failed":
            reason = answer.get("FailureReason") or "SageMaker gives no reason"
            raise TrainingFailed(self.name, FailureReport(FailureClass.PLATFORM, reason))
        return self

    def best_training_job(self) -> str:
        """The name of the training job with the best objective so far.

        Raises:
            CloudtrainError: no training job has reported its objective yet.
        """
        return str(self.best()["TrainingJobName"])

    def best(self) -> dict[str, Any]:
        """SageMaker's summary of the best training job. Raises the errors of `best_training_job`."""
        answer = self.describe()
        if "BestTrainingJob" not in answer:
            raise CloudtrainError(
                f"tuning job {self.name} has no best training job: none has reported its objective yet",
                hint=(
                    f"Its status is {answer['HyperParameterTuningJobStatus']}. Check that the metric's Regex matches "
                    "the script's output."
                ),
            )
        best: dict[str, Any] = answer["BestTrainingJob"]
        return best

    def analytics(self) -> TuningJobAnalytics:
        """All training jobs as a table."""
        return TuningJobAnalytics(self.summaries)

    def summaries(self) -> list[dict[str, Any]]:
        """The ``TrainingJobSummaries`` of all training jobs."""
        return tuning.training_jobs(self.name, self._aws)

    def __repr__(self) -> str:
        return f"<TuningJob {self.name}>"


def progress(answer: Mapping[str, Any]) -> str:
    """Summarise a response of DescribeHyperParameterTuningJob in one line.

    >>> progress({"HyperParameterTuningJobStatus": "InProgress", "TrainingJobStatusCounters": {"Completed": 2}})
    'InProgress: 2 training jobs have ended'
    """
    counters = answer.get("TrainingJobStatusCounters", {})
    ended = sum(counters.get(name, 0) for name in ("Completed", "NonRetryableError", "Stopped"))
    line = f"{answer['HyperParameterTuningJobStatus']}: {ended} training jobs have ended"
    best = answer.get("BestTrainingJob", {})
    metric = best.get("FinalHyperParameterTuningJobObjectiveMetric")
    if metric:
        line += f"; the best: {metric['MetricName']} {metric['Value']:g} of {best['TrainingJobName']}"
    return line


class TuningJobAnalytics:
    """The hyperparameters and the result of each training job. Every call queries SageMaker again."""

    def __init__(self, summaries: Callable[[], list[dict[str, Any]]]) -> None:
        self._summaries = summaries

    def training_job_summaries(self) -> list[dict[str, Any]]:
        """The ``TrainingJobSummaries`` that SageMaker returns."""
        return self._summaries()

    def rows(self) -> list[dict[str, Any]]:
        """One dict per training job, with the columns of the SageMaker SDK."""
        return [training_job_row(summary) for summary in self._summaries()]

    def dataframe(self) -> Any:
        """The rows as a ``pandas.DataFrame``. Raises CloudtrainError if pandas is not installed."""
        return to_dataframe(self.rows())


def training_job_row(summary: Mapping[str, Any]) -> dict[str, Any]:
    """One of ``TrainingJobSummaries`` as a row: hyperparameters, then the result. Times are `datetime` objects."""
    start, end = summary.get("TrainingStartTime"), summary.get("TrainingEndTime")
    row = {
        **tuned_values(summary),
        "TrainingJobName": summary["TrainingJobName"],
        "TrainingJobStatus": summary["TrainingJobStatus"],
        "FinalObjectiveValue": summary.get("FinalHyperParameterTuningJobObjectiveMetric", {}).get("Value"),
        "TrainingStartTime": start,
        "TrainingEndTime": end,
    }
    if start and end:
        row["TrainingElapsedTimeSeconds"] = (end - start).total_seconds()
    if "TrainingJobDefinitionName" in summary:
        row["TrainingJobDefinitionName"] = summary["TrainingJobDefinitionName"]
    return row


def tuned_values(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters that the search chose. Numbers are parsed; other values are as the script received them."""
    return {name: _decode(text) for name, text in summary.get("TunedHyperParameters", {}).items()}


def _decode(text: str) -> Any:
    """Decode the value of a hyperparameter. For framework images, categorical values are encoded as JSON strings."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    if text.startswith('"'):
        with suppress(ValueError):
            return json.loads(text)
    return text


Classes = type[Estimator] | Mapping[str, type[Estimator]] | None

_FRAMEWORKS = {name for name, _ in ESTIMATORS.values()} - {"Estimator"}


def attached_search(
    answer: Mapping[str, Any], session: Any, given: Classes
) -> tuple[list[Candidate], dict[str, Any]]:
    """The estimators of a search with the ranges to tune, and the tuner's arguments that do not depend on estimators.

    Args:
        answer: the response of DescribeHyperParameterTuningJob.
        session: the AWS session of the estimators.
        given: the classes of the estimators, which replace the recorded ones.
    """
    config = answer["HyperParameterTuningJobConfig"]
    limits = config.get("ResourceLimits", {})
    is_auto = bool(answer.get("Autotune", {}).get("Mode") == "Enabled")
    definitions = [
        {
            "TuningObjective": config.get("HyperParameterTuningJobObjective"),
            "HyperParameterRanges": config.get("ParameterRanges", {}),
            **one,
        }
        for one in answer.get("TrainingJobDefinitions") or [answer["TrainingJobDefinition"]]
    ]
    return [_candidate(one, session, given, is_auto) for one in definitions], {
        "strategy": config["Strategy"],
        "objective_type": definitions[0]["TuningObjective"]["Type"],
        "max_jobs": limits.get("MaxNumberOfTrainingJobs"),
        "max_parallel_jobs": limits.get("MaxParallelTrainingJobs", 1),
        "max_runtime_in_seconds": limits.get("MaxRuntimeInSeconds"),
        "base_tuning_job_name": base_of(answer["HyperParameterTuningJobName"]),
        "warm_start_config": WarmStartConfig.from_job_desc(answer.get("WarmStartConfig")),
        "strategy_config": StrategyConfig.from_job_desc(config.get("StrategyConfig")),
        "completion_criteria_config": TuningJobCompletionCriteriaConfig.from_job_desc(
            config.get("TuningJobCompletionCriteria")
        ),
        "early_stopping_type": config.get("TrainingJobEarlyStoppingType", "Off"),
        "random_seed": config.get("RandomSeed"),
        "autotune": is_auto,
    }


def _candidate(definition: Mapping[str, Any], session: Any, given: Classes, is_auto: bool) -> Candidate:
    name, static = definition.get("DefinitionName"), definition.get("StaticHyperParameters", {})
    chosen = given.get(name or "") if isinstance(given, Mapping) else given
    kind = chosen or _recorded_class(static)
    is_framework = kind.__module__ == frameworks.__name__
    ranges = definition["HyperParameterRanges"]
    hints = {one["Name"]: one["ValueHint"] for one in ranges.get("AutoParameters", ())}
    resources = definition.get("HyperParameterTuningResourceConfig") or definition["ResourceConfig"]
    several = resources.get("InstanceConfigs", ())
    body = {
        **definition,
        "HyperParameters": {**static, **hints},
        "ResourceConfig": {**resources, **(several[0] if several else {})},
    }
    arguments = described_arguments(body, is_framework=is_framework)
    arguments.get("hyperparameters", {}).pop("_tuning_objective_metric", None)
    configs = [
        InstanceConfig(one["InstanceCount"], one["InstanceType"], one["VolumeSizeInGB"]) for one in several
    ]
    return Candidate(
        kind(**arguments, platform="sagemaker", sagemaker_session=session),
        definition["TuningObjective"]["MetricName"],
        ranges_of(ranges, as_json=is_framework),
        definition["AlgorithmSpecification"].get("MetricDefinitions"),
        name=name,
        is_auto=is_auto,
        instance_configs=configs or None,
    )


def _recorded_class(static: Mapping[str, str]) -> type[Estimator]:
    """The framework's estimator class named in the hyperparameters; `Estimator` if there is none."""
    name = decode_hyperparameters(static).get("sagemaker_estimator_class_name")
    return getattr(frameworks, name) if name in _FRAMEWORKS else Estimator
