"""Answers of DescribeTrainingJob, shaped as in AWS's API reference."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

START = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def answer(status: str, *steps: tuple[str, float], **fields: Any) -> dict[str, Any]:
    """An answer with transitions: secondary status and seconds since the start, in order.

    The last one lasts, unless it ends the job.
    """
    ends = [at(second) for _, second in steps[1:]]
    transitions: list[dict[str, Any]] = [
        {"Status": name, "StartTime": at(second), "StatusMessage": name} for name, second in steps
    ]
    for transition, end in zip(transitions, ends, strict=False):
        transition["EndTime"] = end
    return {
        "TrainingJobName": "a-job",
        "TrainingJobStatus": status,
        "SecondaryStatus": steps[-1][0],
        "CreationTime": START,
        "LastModifiedTime": at(steps[-1][1]),
        "SecondaryStatusTransitions": transitions,
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
        **fields,
    }
