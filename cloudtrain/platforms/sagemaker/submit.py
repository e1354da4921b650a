"""Starts and stops training jobs and tuning jobs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_code, found, is_not_found, may_have_done
from cloudtrain.errors import CloudtrainError, InDoubt, JobExists, JobNotFound, PlatformError
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker.training_job import describe_training_job

CLOCKS_DIFFER = 60.0
"""The seconds that the local clock may be ahead of SageMaker's."""


def submit(request: Request, aws: Aws) -> None:
    """Start the job.

    botocore or the user may repeat a request whose response was lost. A job with this name that was started by an
    identical request therefore counts as success.

    Raises:
        JobExists: there is another job with this name.
        InvalidJob: a field of the request is wrong.
        PlatformError: SageMaker refuses the job.
    """
    body, began = with_secrets(request), time.time()
    with hidden(request.secrets.values()):
        try:
            TRAINING.start(body, aws, began)
        except PlatformError as error:
            if not may_have_done(error) or not _has_started(body, aws, began, error):
                raise


@dataclass(frozen=True)
class JobKind:
    """A kind of SageMaker's jobs, by the names that the API has for it."""

    field: str
    """The start of its fields: ``TrainingJob``."""
    operation: str
    """The end of its operations: ``training_job``."""
    subject: str
    """Its name in the errors of a request."""
    what: str

    def start(self, body: Mapping[str, Any], aws: Aws, began: float) -> None:
        """Send the request. Raises JobExists, InvalidJob, PlatformError."""
        from botocore.exceptions import ClientError

        name = body[f"{self.field}Name"]
        with aws_errors(f"{self.subject} {name} cannot be started"):
            try:
                self._call("create", aws, **body)
            except ClientError as error:
                if error_code(error) != "ResourceInUse":
                    raise
                answer = self._call("describe", aws, **{f"{self.field}Name": name})
                if not is_repeated(
                    body, {**answer, "TrainingJobStatus": answer[f"{self.field}Status"]}, began
                ):
                    raise JobExists(
                        f"there is already a {self.what} {name} in this account and region",
                        hint="Without one, cloudtrain generates a unique name.",
                    ) from error

    def describe(self, name: str, aws: Aws) -> dict[str, Any]:
        """SageMaker's description of the job. Raises JobNotFound."""
        with self.errors(name):
            answer: dict[str, Any] = self._call("describe", aws, **{f"{self.field}Name": name})
        return answer

    def stop(self, name: str, aws: Aws) -> None:
        """Stop the job: ranks get SIGTERM. Does nothing if it has ended or is stopping. Raises JobNotFound."""
        from botocore.exceptions import ClientError

        asked = {f"{self.field}Name": name}
        with self.errors(name):
            try:
                self._call("stop", aws, **asked)
            except ClientError as error:
                # the message for a job that has ended varies, so check its state
                if error_code(error) != "ValidationException" or is_not_found(error):
                    raise
                if self._call("describe", aws, **asked)[f"{self.field}Status"] == "InProgress":
                    raise

    @contextmanager
    def errors(self, name: str) -> Iterator[None]:
        """Like `aws_errors`, for a request about the job. Raises JobNotFound if it does not exist."""
        with aws_errors(f"{self.subject} {name}"), found(f"{self.what} {name}"):
            yield

    def _call(self, verb: str, aws: Aws, **arguments: Any) -> Any:
        return getattr(aws.client("sagemaker"), f"{verb}_{self.operation}")(**arguments)


TRAINING = JobKind("TrainingJob", "training_job", "job", "training job")
TUNING = JobKind("HyperParameterTuningJob", "hyper_parameter_tuning_job", "tuning job", "tuning job")


def _has_started(body: Mapping[str, Any], aws: Aws, began: float, error: PlatformError) -> bool:
    """Whether the job runs although its request failed with ``error``. Raises PlatformError if AWS does not answer."""
    try:
        return is_repeated(body, describe_training_job(body["TrainingJobName"], aws), began)
    except JobNotFound:
        return False
    except PlatformError:
        raise in_doubt(error, body["TrainingJobName"]) from error.__cause__


def in_doubt(error: PlatformError, job_name: str) -> InDoubt:
    """``error`` with what to do if the job may exist all the same."""
    hint = f"The job may have started all the same. See: cloudtrain describe {job_name} --platform sagemaker"
    return InDoubt(error.message, hint=f"{error.hint} {hint}".lstrip())


@contextmanager
def hidden(values: Iterable[str]) -> Iterator[None]:
    """Remove ``values`` from errors raised inside: SageMaker's errors quote an environment that it refuses."""
    try:
        yield
    except CloudtrainError as error:
        message = ValueHider(values).hide_all(error.message)
        if message == error.message:
            raise
        raise type(error)(message, hint=error.hint) from None


def with_secrets(request: Request) -> dict[str, Any]:
    """The body to send: the request with its secret values."""
    if not request.secrets:
        return dict(request.body)
    return {**request.body, "Environment": {**request.body.get("Environment", {}), **request.secrets}}


def is_repeated(body: Mapping[str, Any], answer: Mapping[str, Any], began: float) -> bool:
    """Whether the request ``body`` started a job: the job runs, or it was created after the request was made.

    An older job that has ended does not count: a user who submits its request again wants a new job.

    Args:
        answer: SageMaker's response to DescribeTrainingJob, which does not have all fields of a request.
        began: the time of the first request, in seconds since the epoch.
    """
    is_new = answer["CreationTime"].timestamp() > began - CLOCKS_DIFFER
    is_current = answer["TrainingJobStatus"] == "InProgress" or is_new
    return is_current and all(_includes(answer[key], value) for key, value in body.items() if key in answer)


def _includes(answer: Any, asked: Any) -> bool:
    """Whether the response has all requested values. It may also have defaults."""
    if isinstance(asked, Mapping):
        return all(key in answer and _includes(answer[key], value) for key, value in asked.items())
    if isinstance(asked, (list, tuple)):
        return len(answer) == len(asked) and all(map(_includes, answer, asked))
    return bool(answer == asked)
