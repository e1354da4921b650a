"""A handle on a tuning job: its progress and its results, also as a table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import CloudtrainError, TrainingFailed
from cloudtrain.platforms.sagemaker import SageMakerPlatform, tuning
from cloudtrain.platforms.sagemaker.submit import TUNING
from cloudtrain.training_analytics import to_dataframe

POLL_SECONDS = 0.5
LONGEST_POLL_SECONDS = 30.0
FINAL = ("Completed", "Failed", "Stopped", "Deleting", "DeleteFailed")


class TuningJob:
    """A handle on one tuning job. It holds no state: every method queries SageMaker."""

    def __init__(self, name: str, platform: SageMakerPlatform) -> None:
        self.name = name
        self.platform = platform

    @property
    def job_name(self) -> str:
        """The name, as the SageMaker SDK calls it."""
        return self.name

    @classmethod
    def attach(cls, tuning_job_name: str, sagemaker_session: Any = None) -> TuningJob:
        """The tuning job with this name, started by this user or another. Raises JobNotFound."""
        job = cls(tuning_job_name, SageMakerPlatform(sagemaker_session))
        job.describe()
        return job

    def describe(self) -> dict[str, Any]:
        """SageMaker's response to DescribeHyperParameterTuningJob."""
        return TUNING.describe(self.name, self.platform.aws)

    def stop_tuning_job(self) -> None:
        """Stop the tuning job and its training jobs. Returns immediately."""
        TUNING.stop(self.name, self.platform.aws)

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
        """SageMaker's summary of that training job. Raises the errors of `best_training_job`."""
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
        return TuningJobAnalytics(lambda: tuning.training_jobs(self.name, self.platform.aws))

    def __repr__(self) -> str:
        return f"<TuningJob {self.name}>"


def progress(answer: Mapping[str, Any]) -> str:
    """A response of DescribeHyperParameterTuningJob in one line.

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
    """One of ``TrainingJobSummaries`` as a row: the hyperparameters, then the result. Times are datetimes."""
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
    """The value of a hyperparameter. For the image of a framework, categorical values are encoded as JSON strings."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    if text.startswith('"'):
        with suppress(ValueError):
            return json.loads(text)
    return text
