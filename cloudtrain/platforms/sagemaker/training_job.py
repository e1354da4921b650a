"""A training job as SageMaker describes it: its status and transitions as cloudtrain's, and the request that made it.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import job_errors
from cloudtrain.contract import JobStatus
from cloudtrain.contract.settings import HIDDEN_VARIABLES
from cloudtrain.platforms.base import JobState, Request
from cloudtrain.spec import REDACTED, redact


def describe_training_job(job_name: str, aws: Aws) -> dict[str, Any]:
    """SageMaker's response to DescribeTrainingJob. Raises JobNotFound."""
    with job_errors(job_name):
        answer: dict[str, Any] = aws.client("sagemaker").describe_training_job(TrainingJobName=job_name)
    return answer


WAITING = {
    "Starting",
    "Pending",
    "LaunchingMLInstances",
    "PreparingTrainingStack",
    "Interrupted",
    "Restarting",
}
"""Secondary statuses of a job that has no instances yet, or lost them."""
ENDED = {"Completed", "Failed", "Stopped", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"}
REASONS = {
    "MaxRuntimeExceeded": "it ran longer than max_run",
    "MaxWaitTimeExceeded": "it waited and ran longer than max_wait",
    "Interrupted": "its spot instances were reclaimed",
    "Restarting": "it restarts on other instances",
}


def job_status(answer: Mapping[str, Any]) -> JobStatus:
    """The status in a response of DescribeTrainingJob, or a row of ListTrainingJobs."""
    status, secondary = answer["TrainingJobStatus"], answer.get("SecondaryStatus", "")
    if status == "Deleting":  # the job has ended
        status = secondary if secondary in ("Completed", "Failed") else "Stopped"
    if status == "InProgress":
        return JobStatus.PENDING if secondary in WAITING else JobStatus.RUNNING
    if status == "Stopped" and (secondary == "Interrupted" or was_lost(answer)):
        return JobStatus.INTERRUPTED
    return JobStatus(status)


def was_lost(answer: Mapping[str, Any]) -> bool:
    """Whether a spot job lost its instances, and did not get new ones within its max_wait."""
    return answer.get("SecondaryStatus") == "MaxWaitTimeExceeded" and restarts(answer) > 0


def restarts(answer: Mapping[str, Any]) -> int:
    """The number of times that the job restarted, after it lost its instances or failed."""
    names = [transition["Status"] for transition in answer.get("SecondaryStatusTransitions", ())]
    before = [None, *names]
    return sum(
        name == "Interrupted" or (name == "Restarting" and previous != "Interrupted")
        for previous, name in zip(before, names, strict=False)
    )


def phases(answer: Mapping[str, Any]) -> dict[str, float]:
    """The total seconds of each completed secondary status, over all starts of the job."""
    took: dict[str, float] = {}
    for transition in answer.get("SecondaryStatusTransitions", ()):
        end = transition.get("EndTime")
        if end is not None and transition["Status"] not in ENDED:
            seconds = (end - transition["StartTime"]).total_seconds()
            took[transition["Status"]] = took.get(transition["Status"], 0.0) + seconds
    return took


def states(answer: Mapping[str, Any]) -> list[JobState]:
    """The secondary statuses so far, with SageMaker's messages."""
    return [
        JobState(found["StartTime"].timestamp(), found["Status"], found.get("StatusMessage", ""))
        for found in answer.get("SecondaryStatusTransitions", ())
    ]


def instance_groups(resources: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The groups of instances in a ResourceConfig, each with ``InstanceType`` and ``InstanceCount``.

    For a job with instance preferences, what SageMaker has selected from them; empty as long as it has not.
    """
    if resources.get("InstancePreferences"):
        if "SelectedInstanceType" not in resources:
            return []
        kind = resources["SelectedInstanceType"]
        counts = {one["InstanceType"]: one.get("InstanceCount") for one in resources["InstancePreferences"]}
        count = (
            resources.get("SelectedInstanceCount") or counts.get(kind) or resources.get("InstanceCount", 1)
        )
        return [{"InstanceType": kind, "InstanceCount": count}]
    groups = resources.get("InstanceGroups") or [resources]
    return [group for group in groups if "InstanceType" in group]


def host_count(resources: Mapping[str, Any]) -> int:
    """The number of hosts in a ResourceConfig; 0 if it is not known yet."""
    return sum(int(group.get("InstanceCount", 0)) for group in instance_groups(resources))


def first_time(moments: Iterable[datetime | None]) -> float | None:
    """The first of ``moments`` that is not None, in seconds since the epoch."""
    return next((moment.timestamp() for moment in moments if moment is not None), None)


SELECTED = ("SelectedInstanceType", "SelectedInstanceCount")
"""Fields of ResourceConfig that only the description has: what SageMaker selected from the preferences."""


def submitted_request(job_name: str, aws: Aws) -> Request:
    """The fields of DescribeTrainingJob that CreateTrainingJob accepts, and the tags.

    Raises:
        JobNotFound: the account and region have no such job.
    """
    client = aws.client("sagemaker")
    with job_errors(job_name):
        described = client.describe_training_job(TrainingJobName=job_name)
        pages = client.get_paginator("list_tags").paginate(ResourceArn=described["TrainingJobArn"])
        tags = [tag for page in pages for tag in page["Tags"]]
    taken = client.meta.service_model.operation_model("CreateTrainingJob").input_shape.members
    body: dict[str, Any] = {name: value for name, value in described.items() if name in taken}
    if tags:
        body["Tags"] = tags
    if body.get("ResourceConfig"):
        body["ResourceConfig"] = {
            name: value for name, value in body["ResourceConfig"].items() if name not in SELECTED
        }
    if body.get("Environment"):
        body["Environment"] = without_secrets(body["Environment"])
    if body.get("OutputDataConfig", {}).get("CompressionType") == "GZIP":  # SageMaker's default
        body["OutputDataConfig"] = {
            name: value for name, value in body["OutputDataConfig"].items() if name != "CompressionType"
        }
    return Request("sagemaker", job_name, body)


def without_secrets(environment: dict[str, str]) -> dict[str, str]:
    """The variables, with ``***`` for likely secrets and for those that the job names as its ``secrets``."""
    names = environment.get(HIDDEN_VARIABLES, "").split(",")
    return {**redact(environment), **{name: REDACTED for name in names if name in environment}}
