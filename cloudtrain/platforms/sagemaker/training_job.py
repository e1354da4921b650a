"""Starts, stops and describes training jobs and tuning jobs. Translates statuses and transitions to cloudtrain's.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudtrain._secrets.hiding import ValueHider
from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors, error_code, found, is_not_found, job_errors, may_have_done
from cloudtrain.contract import JobStatus
from cloudtrain.contract.settings import HIDDEN_VARIABLES
from cloudtrain.errors import CloudtrainError, InDoubt, JobExists, JobNotFound, PlatformError
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
"""Secondary statuses of a job that has no instances yet, or has lost them."""
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

    For a job with instance preferences, the group that SageMaker selected; empty until it has.
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
    """The number of hosts in a ResourceConfig; 0 if it is not yet known."""
    return sum(int(group.get("InstanceCount", 0)) for group in instance_groups(resources))


def first_time(moments: Iterable[datetime | None]) -> float | None:
    """The first of ``moments`` that is not None, in seconds since the epoch."""
    return next((moment.timestamp() for moment in moments if moment is not None), None)


SELECTED = ("SelectedInstanceType", "SelectedInstanceCount")
"""Fields of ResourceConfig that only the description has: SageMaker's selection from the preferences."""


def submitted_request(job_name: str, aws: Aws) -> Request:
    """The job's request: the fields of DescribeTrainingJob that CreateTrainingJob accepts, and the tags.

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
    """The variables, with ``***`` for likely secrets and for those in the job's ``secrets``."""
    names = environment.get(HIDDEN_VARIABLES, "").split(",")
    return {**redact(environment), **{name: REDACTED for name in names if name in environment}}


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
    """A kind of SageMaker job, with its names in the API."""

    field: str
    """The prefix of its fields: ``TrainingJob``."""
    operation: str
    """The suffix of its operations: ``training_job``."""
    subject: str
    """Its name in errors of requests."""
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
    """``error`` with a hint for the case that the job exists nevertheless."""
    hint = f"The job may have started all the same. See: cloudtrain describe {job_name} --platform sagemaker"
    return InDoubt(error.message, hint=f"{error.hint} {hint}".lstrip())


@contextmanager
def hidden(values: Iterable[str]) -> Iterator[None]:
    """Remove ``values`` from errors raised inside: SageMaker's errors quote an environment that it rejects."""
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
    """Whether the request ``body`` started a job that runs, or that was created after the request was sent.

    An older job that has ended does not count: a user who resubmits its request wants a new job.

    Args:
        answer: SageMaker's response to DescribeTrainingJob, which lacks some fields of a request.
        began: the time of the first request, in seconds since the epoch.
    """
    is_new = answer["CreationTime"].timestamp() > began - CLOCKS_DIFFER
    is_current = answer["TrainingJobStatus"] == "InProgress" or is_new
    return is_current and all(_includes(answer[key], value) for key, value in body.items() if key in answer)


def _includes(answer: Any, asked: Any) -> bool:
    """Whether the response has all requested values. It may have defaults in addition."""
    if isinstance(asked, Mapping):
        return all(key in answer and _includes(answer[key], value) for key, value in asked.items())
    if isinstance(asked, (list, tuple)):
        return len(answer) == len(asked) and all(map(_includes, answer, asked))
    return bool(answer == asked)
