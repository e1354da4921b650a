"""A tuning job that was started: how it goes, and what it has found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.errors import CloudtrainError, TrainingFailed
from cloudtrain.platforms.sagemaker import SageMakerPlatform, tuning
from cloudtrain.tuning.analytics import TuningJobAnalytics

POLL_SECONDS = 0.5
LONGEST_POLL_SECONDS = 30.0
FINAL = ("Completed", "Failed", "Stopped", "Deleting", "DeleteFailed")


class TuningJob:
    """A handle on one tuning job. It holds no state of its own: every question is put to SageMaker."""

    def __init__(self, name: str, platform: SageMakerPlatform) -> None:
        self.name = name
        self.platform = platform

    @classmethod
    def attach(cls, tuning_job_name: str, sagemaker_session: Any = None) -> TuningJob:
        """The tuning job of this name, whoever has started it. Raises JobNotFound."""
        job = cls(tuning_job_name, SageMakerPlatform(sagemaker_session))
        job.describe()
        return job

    def describe(self) -> dict[str, Any]:
        """SageMaker's answer of DescribeHyperParameterTuningJob."""
        return tuning.describe(self.name, self.platform.aws)

    def stop_tuning_job(self) -> None:
        """Ask it and its training jobs to end."""
        tuning.stop(self.name, self.platform.aws)

    def wait(self, tell: Callable[[str], object] | None = None) -> TuningJob:
        """Wait until the search has ended, and return the job.

        Args:
            tell: called with a line each time that a training job has ended.

        Raises:
            TrainingFailed: the search failed: none of its training jobs completed, say.
        """
        pause, told = POLL_SECONDS, ""
        while True:
            answer = self.describe()
            line = progress(answer)
            if tell and line != told:
                tell(line)
                told = line
            if answer["HyperParameterTuningJobStatus"] in FINAL:
                break
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_SECONDS)
        if answer["HyperParameterTuningJobStatus"] == "Failed":
            reason = answer.get("FailureReason") or "SageMaker does not say why"
            raise TrainingFailed(self.name, FailureReport(FailureClass.PLATFORM, reason))
        return self

    def best_training_job(self) -> str:
        """The name of the training job with the best objective so far. Raises CloudtrainError where none has one."""
        return str(self.best()["TrainingJobName"])

    def best(self) -> dict[str, Any]:
        """All that SageMaker says of that job. Raises as `best_training_job`."""
        answer = self.describe()
        if "BestTrainingJob" not in answer:
            raise CloudtrainError(
                f"tuning job {self.name} has no best training job: none has told its objective yet",
                hint=f"It is {answer['HyperParameterTuningJobStatus']}; does the Regex fit what the script prints?",
            )
        best: dict[str, Any] = answer["BestTrainingJob"]
        return best

    def analytics(self) -> TuningJobAnalytics:
        """All training jobs as a table."""
        return TuningJobAnalytics(lambda: tuning.training_jobs(self.name, self.platform.aws))

    def __repr__(self) -> str:
        return f"<TuningJob {self.name}>"


def progress(answer: Mapping[str, Any]) -> str:
    """One line of an answer of DescribeHyperParameterTuningJob.

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
