"""Descriptions and logs of jobs that are submitted through a queue."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, find_advice
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.errors import JobNotFound, PlatformError
from cloudtrain.platforms.base import JobDescription, JobState, Request
from cloudtrain.platforms.sagemaker.describe import console, describe
from cloudtrain.platforms.sagemaker.logs import Pace, logs
from cloudtrain.platforms.sagemaker.queue.service_job import (
    ENDED,
    WAITING,
    attempts,
    describe_service_job,
    is_busy,
    is_preempted,
    payload_of,
    service_jobs,
    training_job_name,
    training_queues,
)
from cloudtrain.platforms.sagemaker.training_job import describe_training_job, states, without_secrets


def describe_queued(answer: Mapping[str, Any], aws: Aws) -> JobDescription:
    """The description of a job: that of its latest training job, or of the service job while it waits for one.

    Args:
        answer: Batch's response to DescribeServiceJob.
    """
    name, status = answer["jobName"], answer["status"]
    training = _training_job(answer, aws)
    if status == "FORGOTTEN":
        if training is None:
            raise JobNotFound(
                f"Batch and SageMaker have forgotten job {name}",
                hint=f"See what the history of this machine has: cloudtrain report {name}",
            )
        return replace(training, name=name)
    if training and training.status.is_final and status not in ENDED:
        # after an attempt that failed or was preempted, Batch may start another
        training = training if training.status == JobStatus.COMPLETED else None
    if training is None:
        found = _of_service_job(answer, aws)
    else:
        found = _ended(answer, training) if status in ENDED else training
    return replace(
        found,
        name=name,
        submitted_at=_seconds(answer.get("createdAt")) or found.submitted_at,
        attempt=found.attempt + _retries(answer),
        details={**_details(answer), **found.details},
    )


def states_queued(answer: Mapping[str, Any], aws: Aws) -> list[JobState]:
    """The wait in the queue, and the states of the latest training job."""
    queued = []
    if "createdAt" in answer:
        queued.append(JobState(_seconds(answer["createdAt"]) or 0.0, "Queued", _waits(answer, aws)))
    name = training_job_name(answer)
    if name and answer["status"] not in WAITING:
        with suppress(JobNotFound):
            return queued + states(describe_training_job(name, aws))
    return queued


def list_queued(aws: Aws) -> tuple[list[JobDescription], set[str]]:
    """All service jobs of all queues, newest first in each queue, and the names of their training jobs.

    Both are empty if the caller may not list queues. Raises PlatformError if Batch is too busy to answer.
    """
    found: list[JobDescription] = []
    trained: set[str] = set()
    try:
        for queue in training_queues(aws):
            for row in service_jobs(aws, queue):
                row = {"jobQueue": queue, **row}
                trained.update(attempts(row))
                description = _of_service_job(row)
                found.append(replace(description, details=_details(row)))
    except PlatformError as error:
        if is_busy(error):
            raise
    return found, trained


def queued_request(answer: Mapping[str, Any], aws: Aws) -> Request:
    """The request that put the job into its queue, without secrets."""
    client = aws.client("batch")
    taken = client.meta.service_model.operation_model("SubmitServiceJob").input_shape.members
    payload = payload_of(answer)
    if payload.get("Environment"):
        payload["Environment"] = without_secrets(payload["Environment"])
    body = {name: value for name, value in answer.items() if name in taken}
    return Request("sagemaker", answer["jobName"], {**body, "serviceRequestPayload": payload})


def _training_job(answer: Mapping[str, Any], aws: Aws) -> JobDescription | None:
    """The description of the latest training job; None if there is none yet, or if it was deleted."""
    name = training_job_name(answer)
    if name is None or answer["status"] in WAITING:
        return None
    with suppress(JobNotFound):
        return describe(name, aws)
    return None


def _of_service_job(answer: Mapping[str, Any], aws: Aws | None = None) -> JobDescription:
    """The description of a service job alone, without its training jobs.

    Args:
        aws: if given, queries the job's position in the queue.
    """
    status = _status(answer)
    failure = _failure(answer) if status == JobStatus.FAILED else None
    is_waiting = not status.is_final and status != JobStatus.RUNNING
    reason = _waits(answer, aws) if is_waiting else ""
    return JobDescription(
        name=answer["jobName"],
        platform="sagemaker",
        status=status,
        submitted_at=_seconds(answer.get("createdAt")) or 0.0,
        started_at=_seconds(answer.get("startedAt")),
        ended_at=_seconds(answer.get("stoppedAt")) if status.is_final else None,
        exit_code=0 if status == JobStatus.COMPLETED else 1 if failure else None,
        failure=failure,
        reason=reason,
        phase=None if status.is_final else answer["status"],
        checkpoint_uri=payload_of(answer).get("CheckpointConfig", {}).get("S3Uri"),
        place=_console(answer, aws) if aws else "",
    )


def _ended(answer: Mapping[str, Any], training: JobDescription) -> JobDescription:
    """The description of a training job, with the outcome of its service job, which has ended."""
    if training.status in (JobStatus.COMPLETED, JobStatus.FAILED) or training.reason:
        return training
    if answer.get("isTerminated"):
        return replace(training, status=JobStatus.STOPPED, failure=None)
    if is_preempted(answer):
        return replace(training, status=JobStatus.INTERRUPTED, failure=_preemption(answer))
    if answer["status"] == "FAILED":
        return replace(training, status=JobStatus.FAILED, failure=_failure(answer), exit_code=1)
    return training


def _status(answer: Mapping[str, Any]) -> JobStatus:
    status = answer["status"]
    if status == "SUCCEEDED":
        return JobStatus.COMPLETED
    if status == "FAILED":
        return JobStatus.STOPPED if answer.get("isTerminated") else JobStatus.FAILED
    if answer.get("isTerminated"):
        return JobStatus.STOPPING
    return JobStatus.RUNNING if status == "RUNNING" else JobStatus.PENDING


def _failure(answer: Mapping[str, Any]) -> FailureReport:
    said = answer.get("statusReason") or "AWS Batch gives no reason"
    advice = find_advice(said)
    return FailureReport(
        advice.failure_class if advice else FailureClass.PLATFORM,
        said,
        advice.hint if advice else "",
        time=_seconds(answer.get("stoppedAt")),
    )


def _preemption(answer: Mapping[str, Any]) -> FailureReport:
    return FailureReport(
        FailureClass.PREEMPTED,
        "other jobs of its queue preempted it, and it was not queued again",
        "Increase preemption_configuration, or submit the job again: it resumes from its last checkpoint.",
        exit_code=128 + signal.SIGTERM,
        time=_seconds(answer.get("stoppedAt")),
    )


def _waits(answer: Mapping[str, Any], aws: Aws | None) -> str:
    """The reason why a job waits, and its position in the queue, which Batch reports for the first 100 jobs."""
    queue = _queue_name(answer)
    if answer["status"] not in WAITING:
        return f"the queue {queue} has started it"
    position = _position(answer, aws) if aws and answer["status"] == "RUNNABLE" else None
    said = f": {answer['statusReason']}" if answer.get("statusReason") else ""
    return f"waits in the queue {queue}" + (f" at position {position}" if position else "") + said


def _position(answer: Mapping[str, Any], aws: Aws) -> int | None:
    with suppress(PlatformError), aws_errors("the queue"):
        snapshot = aws.client("batch").get_job_queue_snapshot(jobQueue=answer["jobQueue"])
        arns = [job.get("jobArn") for job in snapshot.get("frontOfQueue", {}).get("jobs", ())]
        return arns.index(answer["jobArn"]) + 1 if answer.get("jobArn") in arns else None
    return None


def _details(answer: Mapping[str, Any]) -> dict[str, str]:
    preempted = answer.get("preemptionSummary", {}).get("preemptedAttemptCount")
    found = {
        "queue": _queue_name(answer),
        "share": answer.get("quotaShareName") or answer.get("shareIdentifier"),
        "priority": answer.get("schedulingPriority"),
        "preempted": f"{preempted} time{'s' if preempted > 1 else ''}" if preempted else None,
        "training job": training_job_name(answer),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _retries(answer: Mapping[str, Any]) -> int:
    return max(0, len(attempts(answer)) - 1)


def _queue_name(answer: Mapping[str, Any]) -> str:
    return str(answer.get("jobQueue", "")).rpartition("/")[2]


def _console(answer: Mapping[str, Any], aws: Aws) -> str:
    """The page of the queue in the AWS console."""
    queue = answer.get("jobQueue", "")
    return f"{console(aws.region, aws.partition)}/batch/home?region={aws.region}#queues/detail/{queue}"


def _seconds(milliseconds: int | None) -> float | None:
    return milliseconds / 1000 if milliseconds else None


def newest_first(one: Iterator[JobDescription], other: list[JobDescription]) -> Iterator[JobDescription]:
    """Both sequences merged by the time of submission. ``one`` must be sorted."""
    from heapq import merge

    return merge(one, sorted(other, key=lambda job: -job.submitted_at), key=lambda job: -job.submitted_at)


POLL_SECONDS = 2.0
LONGEST_POLL_SECONDS = 15.0


def logs_queued(
    answer: Mapping[str, Any],
    aws: Aws,
    *,
    follow: bool,
    poll: float = POLL_SECONDS,
    pace: Pace | None = None,
) -> Iterator[str]:
    """The lines of all attempts; with ``follow``, until the service job has ended.

    Args:
        answer: Batch's response to DescribeServiceJob.
        poll: seconds between the first two queries to Batch. The pause grows while the job waits.
        pace: the intervals between requests to CloudWatch.
    """
    shown: set[str] = set()
    pause = poll
    while True:
        names = attempts(answer)
        for name in names:
            if name in shown:
                continue
            shown.add(name)
            pause = poll
            with suppress(JobNotFound):  # Batch deletes attempts that found no capacity
                yield from logs(name, aws, follow=follow and name == names[-1], pace=pace)
        if not follow or answer["status"] in ENDED or "jobArn" not in answer:
            return
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_POLL_SECONDS)
        answer = _refresh(answer, aws)


def _refresh(answer: Mapping[str, Any], aws: Aws) -> Mapping[str, Any]:
    """The current description; ``answer`` while AWS has transient errors, or as failed if Batch deleted the job."""
    try:
        return describe_service_job(answer["jobArn"], aws) or {**answer, "status": "FAILED"}
    except PlatformError as error:
        if not error.is_transient:
            raise
        return answer
