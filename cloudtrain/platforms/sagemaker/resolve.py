"""Resolves values that only the AWS account knows: its bucket, the role's ARN, the URI of an image in ECR."""

from __future__ import annotations

import os

import msgspec

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.aws.images import has_gpus
from cloudtrain.errors import InvalidJob
from cloudtrain.images import AUTO
from cloudtrain.platforms.sagemaker.check_request import check_secrets
from cloudtrain.platforms.sagemaker.inputs import check_s3
from cloudtrain.platforms.sagemaker.queue.request import QueueOptions
from cloudtrain.spec import TrainingJob


def resolve(job: TrainingJob, aws: Aws) -> TrainingJob:
    """``job`` with a role, an image, an output path and a code location that need no further look-up.

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
            hint="Set role='arn:aws:iam::<account>:role/<name>', or set it for all jobs in the config file.",
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
