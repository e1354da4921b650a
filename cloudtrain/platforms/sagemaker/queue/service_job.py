"""Service jobs: puts jobs into a queue, removes them from it, and finds them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_message, may_have_done, may_pass
from cloudtrain.errors import JobExists, JobNotFound, PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.training_job import CLOCKS_DIFFER, hidden, in_doubt, with_secrets
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

WAITING = {"SUBMITTED", "PENDING", "RUNNABLE"}
"""The statuses of a service job that currently has no training job."""
ENDED = {"SUCCEEDED", "FAILED"}

SEARCH_ATTEMPTS = 2
"""The attempts of the query for queues: few accounts have any, and a network may have no route to Batch."""


def find_recorded(job_name: str, aws: Aws) -> dict[str, Any] | None:
    """Batch's description of the service job that this machine submitted; None if there is none.

    Batch deletes service jobs days after their end. The description is then the recorded one, with the last attempt.
    """
    record = _read(job_name, aws)
    if record is None or _is_of_other_account(record["arn"], aws):
        return None
    found = describe_service_job(record["arn"], aws)
    if found is None:
        name = record.get("training_job")
        return {"jobName": job_name, "status": "FORGOTTEN", "trainingJob": name} if name else None
    name = training_job_name(found)
    if name and name != record.get("training_job"):
        remember(job_name, aws, record["arn"], name)
    return found


def search(job_name: str, aws: Aws) -> dict[str, Any] | None:
    """Batch's description of the newest service job of this name in any queue for SageMaker; None if there is none.

    A caller who may not list queues has no service jobs either. Raises PlatformError if Batch is too busy to answer.
    """
    try:
        for queue in training_queues(aws):
            for row in service_jobs(aws, queue, job_name):
                found = describe_service_job(row["jobArn"], aws)
                if found is not None:
                    remember(job_name, aws, row["jobArn"], training_job_name(found))
                    return found
    except PlatformError as error:
        if is_busy(error):
            raise
    return None


def is_busy(error: PlatformError) -> bool:
    """Whether Batch is available to the caller, but temporarily did not respond."""
    from botocore.exceptions import ClientError

    cause = error.__cause__
    if not isinstance(cause, ClientError) or not may_pass(cause):
        return False
    not_implemented = 501  # from a service that simulates AWS
    return cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != not_implemented


def training_queues(aws: Aws) -> list[str]:
    """The ARNs of the account's queues in the region that accept training jobs."""
    with aws_errors("the queues of AWS Batch"):
        client = aws.client("batch", attempts=SEARCH_ATTEMPTS)
        pages = client.get_paginator("describe_job_queues").paginate()
        return [
            queue["jobQueueArn"]
            for page in pages
            for queue in page["jobQueues"]
            if queue.get("jobQueueType") == "SAGEMAKER_TRAINING"
        ]


def service_jobs(aws: Aws, queue: str, job_name: str | None = None) -> Iterator[dict[str, Any]]:
    """The service jobs of a queue with any status, newest first; with ``job_name``, only those of this name."""
    # without a filter, Batch lists running jobs only. Its filter of names ignores case
    chosen = ("JOB_NAME", job_name) if job_name else ("AFTER_CREATED_AT", "0")
    filters = [{"name": chosen[0], "values": [chosen[1]]}]
    with aws_errors(f"the jobs of queue {queue}"):
        for page in (
            aws.client("batch").get_paginator("list_service_jobs").paginate(jobQueue=queue, filters=filters)
        ):
            yield from (row for row in page["jobSummaryList"] if job_name in (None, row["jobName"]))


def describe_service_job(arn: str, aws: Aws) -> dict[str, Any] | None:
    """Batch's response to DescribeServiceJob; None if the job does not exist, or was deleted. Raises PlatformError."""
    from botocore.exceptions import ClientError

    with aws_errors(f"service job {arn}"):
        try:
            answer: dict[str, Any] = aws.client("batch").describe_service_job(jobId=arn)
        except ClientError as error:
            if (
                "not found" not in error_message(error).lower()
                and "not exist" not in error_message(error).lower()
            ):
                raise
            return None
    return answer


def training_job_name(answer: Mapping[str, Any]) -> str | None:
    """The name of the training job of the latest attempt; None before the first."""
    if "trainingJob" in answer:
        return str(answer["trainingJob"])
    return _name(answer.get("latestAttempt", {}))


def attempts(answer: Mapping[str, Any]) -> list[str]:
    """The names of the training jobs of all attempts so far, oldest first. Some may have been deleted."""
    listed = [
        *answer.get("attempts", ()),
        *answer.get("preemptionSummary", {}).get("recentPreemptedAttempts", ()),
    ]
    listed.sort(key=lambda attempt: attempt.get("startedAt") or attempt.get("stoppedAt") or 0)
    names = [*map(_name, listed), training_job_name(answer)]
    return list(dict.fromkeys(name for name in names if name))


def is_preempted(answer: Mapping[str, Any]) -> bool:
    """Whether the latest attempt was ended in favour of other jobs."""
    recent = answer.get("preemptionSummary", {}).get("recentPreemptedAttempts", ())
    return training_job_name(answer) in [_name(attempt) for attempt in recent if _name(attempt)]


def payload_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The CreateTrainingJob request of a service job; empty if Batch does not return it."""
    with suppress(ValueError):
        payload = json.loads(answer.get("serviceRequestPayload") or "{}")
        if isinstance(payload, dict):
            return payload
    return {}


def remember(job_name: str, aws: Aws, arn: str, training_job: str | None = None) -> None:
    """Record the ARN of a service job, which most requests to Batch need."""
    record = json.dumps({"arn": arn, "training_job": training_job})
    with suppress(OSError):  # it can be found by its name, too
        write_file(_record(job_name, aws), record.encode())


def forget(job_name: str, aws: Aws) -> None:
    """Delete the record of the job, because it was submitted without a queue."""
    with suppress(OSError):
        _record(job_name, aws).unlink(missing_ok=True)


def _read(job_name: str, aws: Aws) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        record = json.loads(_record(job_name, aws).read_text(encoding="utf-8"))
        if isinstance(record, dict) and isinstance(record.get("arn"), str):
            return record
    return None


def _is_of_other_account(arn: str, aws: Aws) -> bool:
    """Whether the record is that of a job of the same name in another account."""
    parts = arn.split(":")
    with suppress(PlatformError):  # a network may have no route to STS
        return len(parts) > 4 and parts[4] != aws.account
    return False


def _record(job_name: str, aws: Aws) -> Path:
    key = hashlib.sha256(f"{aws.region}/{job_name}".encode()).hexdigest()
    return state_home() / "queued" / f"{key}.json"


def _name(attempt: Mapping[str, Any]) -> str | None:
    arn = attempt.get("serviceResourceId", {}).get("value")
    return str(arn).rpartition("/")[2] if arn else None


T = TypeVar("T")


def route(job_name: str, aws: Aws, *, queued: Callable[[Mapping[str, Any]], T], direct: Callable[[], T]) -> T:
    """The result of ``queued`` for a job that was submitted to a queue, else of ``direct``.

    If this machine did not submit the job to a queue, or Batch has deleted it, ``direct`` is tried first.

    Args:
        queued: gets Batch's description of the service job.
        direct: raises JobNotFound if SageMaker has no training job of this name.
    """
    answer = find_recorded(job_name, aws)
    if answer is not None and answer["status"] != "FORGOTTEN":
        return queued(answer)
    try:
        return direct()
    except JobNotFound:
        answer = search(job_name, aws) or answer
        if answer is None:
            raise
        return queued(answer)


STOPPED_BY_USER = "stopped with cloudtrain"


def submit_to_queue(request: Request, aws: Aws) -> None:
    """Put the job into its queue.

    Batch accepts any number of service jobs of the same name, so the queue is queried first. A job of this name from an
    identical request counts as success: the response to that request may have been lost.

    Raises:
        JobExists: the queue has another job of this name.
        PlatformError: Batch refuses the job.
    """
    began = time.time()
    payload = with_secrets(replace(request, body=request.body["serviceRequestPayload"]))
    body = {**request.body, "serviceRequestPayload": payload}
    with hidden(request.secrets.values()):
        if _is_queued(request, body, aws, began):
            return
        try:
            with aws_errors(f"job {request.job_name} cannot be queued"):
                answer = aws.client("batch").submit_service_job(
                    **{**body, "serviceRequestPayload": json.dumps(payload)}
                )
        except PlatformError as error:
            # botocore repeats a request whose response was lost, and Batch rejects the repetition
            try:
                is_queued = _is_queued(request, body, aws, began)
            except JobExists:
                raise
            except PlatformError:
                raise (
                    in_doubt(error, request.job_name) if may_have_done(error) else error
                ) from error.__cause__
            if not is_queued:
                raise
        else:
            remember(request.job_name, aws, answer.get("jobArn") or answer["jobId"])


def _is_queued(request: Request, body: Mapping[str, Any], aws: Aws, began: float) -> bool:
    """Whether the request has already put a job into the queue. Raises JobExists for another job of this name.

    False if the caller may not list the queue. Raises Batch's PlatformError if it is transient, because a job that may
    be in the queue must not be submitted twice.
    """
    try:
        row = next(service_jobs(aws, body["jobQueue"], request.job_name), None)
        found = describe_service_job(row["jobArn"], aws) if row else None
    except PlatformError as error:
        if error.is_transient:
            raise
        return False
    if not row or not found:
        return False
    is_new = found.get("createdAt", 0) / 1000 > began - CLOCKS_DIFFER
    is_current = is_new or found["status"] not in ENDED
    if is_current and payload_of(found) == body["serviceRequestPayload"]:
        remember(request.job_name, aws, row["jobArn"])
        return True
    raise JobExists(
        f"there is already a job {request.job_name} in the queue {body['jobQueue']}",
        hint="Without one, cloudtrain generates a unique name.",
    )


def stop_queued(answer: Mapping[str, Any], aws: Aws) -> None:
    """Remove a service job from its queue, or stop its training job. Does nothing if it has ended."""
    if answer["status"] in ENDED or "jobArn" not in answer:
        return
    with aws_errors(f"job {answer['jobName']} cannot be stopped"):
        aws.client("batch").terminate_service_job(jobId=answer["jobArn"], reason=STOPPED_BY_USER)
