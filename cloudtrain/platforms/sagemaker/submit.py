"""Starting and stopping training jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_code, is_not_found, job_errors
from cloudtrain.errors import CloudtrainError, JobExists
from cloudtrain.platforms.base import Request
from cloudtrain.spec import REDACTED

CLOCKS_DIFFER = 60.0
"""Seconds by which the clock here may be ahead of SageMaker's."""

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

    body, began = with_secrets(request), time.time()
    client = aws.client("sagemaker")
    with hidden(request.secrets.values()), aws_errors(f"job {request.job_name} cannot be started"):
        try:
            client.create_training_job(**body)
        except ClientError as error:
            if error_code(error) != "ResourceInUse":
                raise
            if not is_repeated(body, client.describe_training_job(TrainingJobName=request.job_name), began):
                raise JobExists(
                    f"there is already a training job {request.job_name} in this account and region",
                    hint="Choose another job_name, or leave it out: a new one is made each time.",
                ) from error


@contextmanager
def hidden(values: Iterable[str]) -> Iterator[None]:
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


def is_repeated(body: Mapping[str, Any], answer: Mapping[str, Any], began: float) -> bool:
    """Whether a job was started by the request ``body``: it runs, or has ended since the request was made.

    Whoever asks again for one that has failed wants another start.

    Args:
        answer: what DescribeTrainingJob says of the job; not all fields of a request are in it.
        began: when the request was first made, in seconds since the epoch.
    """
    is_new = answer["CreationTime"].timestamp() > began - CLOCKS_DIFFER
    is_ours = answer["TrainingJobStatus"] == "InProgress" or is_new
    return is_ours and all(_includes(answer[key], value) for key, value in body.items() if key in answer)


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
