"""Converts SageMaker's primary and secondary statuses of a job, and its transitions, to cloudtrain's.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from cloudtrain.contract import JobStatus
from cloudtrain.platforms.base import JobState

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
