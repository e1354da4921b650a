"""Puts jobs into a queue, and takes them out of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, may_have_done
from cloudtrain.errors import JobExists, PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.queue.service_job import (
    ENDED,
    describe_service_job,
    payload_of,
    remember,
    service_jobs,
)
from cloudtrain.platforms.sagemaker.submit import CLOCKS_DIFFER, hidden, in_doubt, with_secrets

STOPPED_BY_USER = "stopped with cloudtrain"


def submit_to_queue(request: Request, aws: Aws) -> None:
    """Put the job into its queue.

    Batch accepts any number of service jobs of the same name, so the queue is queried first. A job of this name that an
    identical request has put there counts as success: its response may have been lost.

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
            # botocore repeats a request whose response was lost, and Batch refuses the repetition
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
    """Whether the request put a job into the queue already. Raises JobExists for another job of this name.

    A caller who may not list the queue learns nothing, and submits. One whom Batch does not answer now gets its
    PlatformError: a job that is there already must not be submitted twice.
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
    """Take a service job out of its queue, or stop its training job. Does nothing if it has ended."""
    if answer["status"] in ENDED or "jobArn" not in answer:
        return
    with aws_errors(f"job {answer['jobName']} cannot be stopped"):
        aws.client("batch").terminate_service_job(jobId=answer["jobArn"], reason=STOPPED_BY_USER)
