"""Gives a job's description SageMaker's names, as in ``describe()["TrainingJobStatus"]`` of the SageMaker SDK."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from cloudtrain.contract import JobStatus

if TYPE_CHECKING:
    from cloudtrain.platforms.base import JobDescription

_STATUSES = {
    JobStatus.PENDING: ("InProgress", "Pending"),
    JobStatus.RUNNING: ("InProgress", "Training"),
    JobStatus.STOPPING: ("Stopping", "Stopping"),
    JobStatus.COMPLETED: ("Completed", "Completed"),
    JobStatus.FAILED: ("Failed", "Failed"),
    JobStatus.STOPPED: ("Stopped", "Stopped"),
    JobStatus.INTERRUPTED: ("Stopped", "Interrupted"),
}
"""``TrainingJobStatus`` and ``SecondaryStatus`` for each status."""


class DescribedNames:
    """The part of a `JobDescription` that looks like a response of DescribeTrainingJob."""

    @property
    def as_sagemaker(self) -> Mapping[str, Any]:
        """The description with SageMaker's names: the service's own response, or its equivalent on another platform."""
        job = cast("JobDescription", self)
        return sagemaker_names(job) if job.answer is None else job.answer

    def __getitem__(self, name: str) -> Any:
        return self.as_sagemaker[name]

    def __contains__(self, name: object) -> bool:
        return name in self.as_sagemaker

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_sagemaker)

    def keys(self) -> KeysView[str]:
        return self.as_sagemaker.keys()

    def get(self, name: str, default: Any = None) -> Any:
        return self.as_sagemaker.get(name, default)


def sagemaker_names(job: JobDescription) -> dict[str, Any]:
    """The fields of a response of DescribeTrainingJob, for a job of another platform."""
    status, secondary = _STATUSES[job.status]
    ended = job.ended_at or job.started_at or job.submitted_at
    fields = {
        "TrainingJobName": job.name,
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "FailureReason": job.failure.summary() if job.failure else None,
        "ModelArtifacts": {"S3ModelArtifacts": job.model_data} if job.model_data else None,
        "CheckpointConfig": {"S3Uri": job.checkpoint_uri} if job.checkpoint_uri else None,
        "CreationTime": _time(job.submitted_at),
        "TrainingStartTime": _time(job.started_at),
        "TrainingEndTime": _time(job.ended_at),
        "LastModifiedTime": _time(ended),
        "TrainingTimeInSeconds": round(job.ended_at - job.started_at)
        if job.started_at and job.ended_at
        else None,
        "FinalMetricDataList": [
            {"MetricName": name, "Value": value, "Timestamp": _time(ended)}
            for name, value in job.metrics.items()
        ]
        or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
