"""A job as a CreateTrainingJob request."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.aws.errors import aws_errors
from cloudtrain.aws.images import has_gpus, training_image
from cloudtrain.errors import InvalidJob
from cloudtrain.images import AUTO
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.sagemaker._debugger import debugger_fields
from cloudtrain.platforms.sagemaker._inputs import check_s3, given, input_data_config
from cloudtrain.platforms.sagemaker._resources import algorithm_specification, options, resource_config
from cloudtrain.spec import TrainingJob, is_secret_name, redact


def render(job: TrainingJob, aws: Aws) -> Request:
    """The request for ``job``, which has a name and, if it has an entry point, a packed source.

    Asks STS for the account where the default bucket is needed, IAM for the role where only its name is given, ECR
    for the image where that is ``auto``, and nothing else.

    Raises:
        InvalidJob: the job wants something that SageMaker, or the runtime it names, cannot give.
        PlatformError: the account or role could not be asked for.
    """
    assert job.job_name, "a job is named before it is rendered"
    if job.platform_options:
        raise InvalidJob("platform_options: sagemaker has none", hint="Its options are fields of their own.")
    body = common(job, aws)
    # without a script there is nothing for our runtime to run: the image knows what to do
    if (job.runtime or ("cloudtrain" if job.entry_point else "toolkit")) == "toolkit":
        from cloudtrain.platforms.common.toolkit import with_toolkit

        body = with_toolkit(body, job, aws.region)
    else:
        from cloudtrain.platforms.sagemaker._bundled_runtime import travel

        body = travel(body, job, aws)
    secrets = {name: value for name, value in job.environment.items() if is_secret_name(name)}
    return Request("sagemaker", job.job_name, body, secrets)


def common(job: TrainingJob, aws: Aws) -> dict[str, Any]:
    """What the request is whichever runtime the container has: all but ``HyperParameters``."""
    _check_places(job)
    output_path = job.output_path or aws.default_output_path
    body = {
        "TrainingJobName": job.job_name,
        "RoleArn": _role(job, aws),
        "AlgorithmSpecification": algorithm_specification(job, _image(job, aws)),
        "InputDataConfig": input_data_config(job) or None,
        "OutputDataConfig": given(
            {
                "S3OutputPath": output_path,
                "KmsKeyId": job.output_kms_key,
                "CompressionType": "NONE" if job.disable_output_compression else None,
            }
        ),
        "ResourceConfig": resource_config(job),
        "StoppingCondition": given(
            {"MaxRuntimeInSeconds": job.max_run, "MaxWaitTimeInSeconds": job.max_wait}
        ),
        "Environment": redact(job.environment) or None,
        **options(job),
        **debugger_fields(job, output_path, aws.region),
    }
    return given(body)


def _image(job: TrainingJob, aws: Aws) -> str:
    if job.image_uri != AUTO:
        return training_image(job, aws.region)
    from cloudtrain.images import ecr_image

    return ecr_image(job, aws, gpu=has_gpus(job))


def _check_places(job: TrainingJob) -> None:
    for field in ("output_path", "checkpoint_s3_uri", "code_location"):
        check_s3(field, getattr(job, field))


def _role(job: TrainingJob, aws: Aws) -> str:
    """The ARN of the role; of a bare name, IAM knows it: roles may have a path."""
    if not job.role:
        raise InvalidJob(
            "role: SageMaker needs one, to act in your account",
            hint="role='arn:aws:iam::<account>:role/<name>'; in the config file it is there for all jobs.",
        )
    if "/" in job.role:
        return job.role
    with aws_errors(f"role {job.role}"):
        return str(aws.client("iam").get_role(RoleName=job.role)["Role"]["Arn"])
