"""Renders a job as a CreateTrainingJob request, or as a SubmitServiceJob request that contains one."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.aws.image_data import numbers
from cloudtrain.aws.images import has_gpus, training_image
from cloudtrain.config import config_path
from cloudtrain.contract.settings import HIDDEN_VARIABLES
from cloudtrain.cost.terms import shortest
from cloudtrain.errors import InvalidJob
from cloudtrain.images import AUTO
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.request import new_request
from cloudtrain.platforms.common.runtime_choice import choose_runtime, explained
from cloudtrain.platforms.common.toolkit import CODE_CHANNEL, CODE_PATH, toolkit_hyperparameters
from cloudtrain.platforms.sagemaker._debugger import debugger_fields
from cloudtrain.platforms.sagemaker.check_request import check_secrets
from cloudtrain.platforms.sagemaker.queue.request import QueueOptions, with_queue
from cloudtrain.platforms.sagemaker.request_fields import (
    channel_config,
    check_s3,
    given,
    input_data_config,
    request_fields,
)
from cloudtrain.spec import DEFAULT_MAX_RUN, TrainingInput, TrainingJob


def resolve(job: TrainingJob, aws: Aws) -> TrainingJob:
    """``job`` with a role, an image, an output path and a code location that need no further queries.

    Queries STS for the account only if the default bucket is needed, IAM for the role only if it is given by name, and
    ECR only for the image ``auto``.

    Raises:
        InvalidJob: SageMaker cannot run the job.
        PlatformError: AWS does not respond, or denies access.
    """
    check(job)
    if job.secrets:
        check_secrets({name: os.environ[name] for name in job.secrets if name in os.environ}, aws)
    return msgspec.structs.replace(
        job,
        role=_role_arn(job, aws),
        image_uri=_image(job, aws),
        output_path=job.output_path or aws.default_output_path,
        code_location=job.code_location or f"{aws.own_folder(job)}/source",
    )


def check(job: TrainingJob) -> None:
    """Raises InvalidJob for a job that SageMaker cannot run in any account."""
    QueueOptions.of(job)
    for kind in job.instance_types:
        if not kind.startswith("ml."):
            wanted = f"write ml.{kind}" if "." in kind else "choose one such as ml.g5.xlarge"
            raise InvalidJob(
                f"instance_type: {kind} is not an instance type of SageMaker, which begins with ml.",
                hint=f"For SageMaker, {wanted}. For another platform, name it: platform='container'.",
            )
    for field in ("output_path", "checkpoint_s3_uri", "code_location"):
        check_s3(field, getattr(job, field))
    if not job.role:
        raise InvalidJob(
            "role: SageMaker needs one, to act in your account",
            hint="Set it with --set role=arn:aws:iam::<account>:role/<name>, or for all jobs in the config file, "
            f"{config_path()}: role: arn:...",
        )


def _role_arn(job: TrainingJob, aws: Aws) -> str:
    """The ARN of the role. For a name, IAM must be queried, because roles may have a path."""
    assert job.role
    if "/" in job.role:
        return job.role
    with aws_errors(f"role {job.role}"):
        return str(aws.client("iam").get_role(RoleName=job.role)["Role"]["Arn"])


def _image(job: TrainingJob, aws: Aws) -> str | None:
    """The job's image; for ``auto``, its URI in ECR."""
    if job.image_uri != AUTO:
        return job.image_uri
    from cloudtrain.images import ecr_image

    return ecr_image(job, aws, gpu=has_gpus(job))


_METRICS_SINCE = {"pytorch": (1, 3), "tensorflow": (1, 15), "mxnet": (1, 6)}
"""The first versions of frameworks whose images write metrics as time series."""


def render(job: TrainingJob, region: str) -> Request:
    """The request for ``job``, which must be resolved and named and, if it has an entry point, packed.

    Raises:
        InvalidJob: SageMaker, or the job's runtime, cannot run the job.
    """
    check(job)
    body = common(job, region)
    if choose_runtime(job) == "toolkit":
        with explained(job):
            body = _with_toolkit(body, job, region)
    else:
        from cloudtrain.platforms.sagemaker._bundled_runtime import with_runtime

        body = with_runtime(body, job, region)
    return new_request("sagemaker", job, with_queue(body, job))


def common(job: TrainingJob, region: str) -> dict[str, Any]:
    """The fields of the request that do not depend on the runtime: all but ``HyperParameters``."""
    assert job.job_name, "a job is named before it is rendered"
    assert job.output_path, "a job is resolved before it is rendered"
    computed: dict[str, Any] = {
        "AlgorithmSpecification.TrainingImage": training_image(job, region),
        "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": _metrics(job),
        "InputDataConfig": input_data_config(job) or None,
        "OutputDataConfig.CompressionType": "NONE" if job.disable_output_compression else None,
        "ResourceConfig.InstanceCount": None if _is_counted(job) else job.instance_count,
        "StoppingCondition.MaxRuntimeInSeconds": shortest(job.max_run or DEFAULT_MAX_RUN, job.cost_terms),
        "HyperParameters": None,
        "Environment": {**job.shown_environment, **_secret_names(job)} or None,
        **debugger_fields(job, job.output_path, region),
    }
    if not job.checkpoint_s3_uri:
        computed["CheckpointConfig.LocalPath"] = None
    return request_fields(job, computed=computed)


def _is_counted(job: TrainingJob) -> bool:
    """Whether groups or preferences set the numbers of hosts. Raises InvalidJob if there is no instance type."""
    if not job.instance_types:
        raise InvalidJob(
            "instance_type: SageMaker needs one",
            hint="For example: --instance-type ml.g5.xlarge (instance_type).",
        )
    return bool(job.instance_groups) or any(one.instance_count for one in job.instance_preferences)


def _metrics(job: TrainingJob) -> bool | None:
    if job.enable_sagemaker_metrics is not None or job.framework is None:
        return job.enable_sagemaker_metrics
    if job.framework == "huggingface":
        return True
    since = _METRICS_SINCE.get(job.framework)
    is_new = since and job.framework_version and numbers(job.framework_version) >= since
    return True if is_new else None


def _with_toolkit(body: dict[str, Any], job: TrainingJob, region: str) -> dict[str, Any]:
    """``body`` with the fields that SageMaker's training toolkit needs. Raises InvalidJob."""
    channels: list[dict[str, Any]] = body.get("InputDataConfig", [])
    place = job.source.uri if job.source else ""
    if job.source and job.enable_network_isolation:
        place = CODE_PATH
        channels = [*channels, channel_config(CODE_CHANNEL, TrainingInput(job.source.uri))]
    values = toolkit_hyperparameters(job, place, job.output_path or "", region)
    return given({**body, "InputDataConfig": channels or None, "HyperParameters": values or None})


def _secret_names(job: TrainingJob) -> dict[str, str]:
    """A variable with the names of the job's secrets for later calls, which is also set with SageMaker's toolkit."""
    return {HIDDEN_VARIABLES: ",".join(job.secrets)} if job.secrets else {}
