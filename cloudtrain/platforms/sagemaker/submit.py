"""Starting and stopping training jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cloudtrain.errors import CloudtrainError, JobExists
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.aws import Aws
from cloudtrain.platforms.sagemaker.errors import aws_errors, error_code, is_not_found, job_errors
from cloudtrain.spec import REDACTED

REPEATED_WITHIN = 900.0
"""Seconds in which the same request for a job that has ended already counts as repeated."""

SHORTEST_SECRET = 4
"""Characters. A shorter one is none, and stands in other words too."""


def submit(request: Request, aws: Aws) -> None:
    """Start the job.

    A request may be repeated after its answer was lost, by botocore or by the user: a job of that name which was
    started by the same request counts as started by this one.

    Raises:
        JobExists: there is another job of this name.
        InvalidJob: a field of the request is wrong.
        PlatformError: SageMaker refuses the job.
    """
    from botocore.exceptions import ClientError

    body = with_secrets(request)
    client = aws.client("sagemaker")
    with _hidden(request.secrets.values()), aws_errors(f"job {request.job_name} cannot be started"):
        try:
            client.create_training_job(**body)
        except ClientError as error:
            if error_code(error) != "ResourceInUse":
                raise
            if not is_repeated(body, client.describe_training_job(TrainingJobName=request.job_name)):
                raise JobExists(
                    f"there is already a training job {request.job_name} in this account and region",
                    hint="Choose another job_name, or leave it out: a new one is made each time.",
                ) from error


@contextmanager
def _hidden(values: Iterable[str]) -> Iterator[None]:
    """Take ``values`` out of the errors raised inside: SageMaker repeats the environment that it does not take."""
    try:
        yield
    except CloudtrainError as error:
        message = error.message
        for value in sorted(values, key=len, reverse=True):
            if len(value) >= SHORTEST_SECRET:
                message = message.replace(value, REDACTED)
        if message == error.message:
            raise
        raise type(error)(message, hint=error.hint) from None


def with_secrets(request: Request) -> dict[str, Any]:
    """The request as it is sent: with the values that it is shown without."""
    if not request.secrets:
        return dict(request.body)
    return {**request.body, "Environment": {**request.body.get("Environment", {}), **request.secrets}}


def is_repeated(body: Mapping[str, Any], answer: Mapping[str, Any], now: float | None = None) -> bool:
    """Whether a job was started by the request ``body``, and not long ago.

    Args:
        answer: what DescribeTrainingJob says of the job; not all fields of a request are in it.
        now: seconds since the epoch.
    """
    age = (time.time() if now is None else now) - answer["CreationTime"].timestamp()
    is_recent = answer["TrainingJobStatus"] == "InProgress" or age < REPEATED_WITHIN
    return is_recent and all(_includes(answer[key], value) for key, value in body.items() if key in answer)


def _includes(answer: Any, asked: Any) -> bool:
    """Whether all that was asked for stands in the answer, which may have defaults besides."""
    if isinstance(asked, Mapping):
        return all(key in answer and _includes(answer[key], value) for key, value in asked.items())
    if isinstance(asked, (list, tuple)):
        return len(answer) == len(asked) and all(map(_includes, answer, asked))
    return bool(answer == asked)


def stop(job_name: str, aws: Aws) -> None:
    """Ask the job to end: ranks get SIGTERM. One that has ended, or is stopping, is left alone.

    Raises JobNotFound.
    """
    from botocore.exceptions import ClientError

    client = aws.client("sagemaker")
    with job_errors(job_name):
        try:
            client.stop_training_job(TrainingJobName=job_name)
        except ClientError as error:
            # how a job that has ended is refused differs: its state tells
            if error_code(error) != "ValidationException" or is_not_found(error):
                raise
            if client.describe_training_job(TrainingJobName=job_name)["TrainingJobStatus"] == "InProgress":
                raise
