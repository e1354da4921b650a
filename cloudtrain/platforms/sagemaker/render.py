"""Renders a job as a CreateTrainingJob request, or as a SubmitServiceJob request that contains one."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.images import training_image
from cloudtrain.contract.settings import HIDDEN_VARIABLES
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.request import new_request
from cloudtrain.platforms.common.runtime_choice import choose_runtime, explained
from cloudtrain.platforms.common.toolkit import CODE_CHANNEL, CODE_PATH, toolkit_hyperparameters
from cloudtrain.platforms.sagemaker._debugger import debugger_fields
from cloudtrain.platforms.sagemaker._resources import algorithm_specification, options, resource_config
from cloudtrain.platforms.sagemaker.inputs import channel_config, given, input_data_config
from cloudtrain.platforms.sagemaker.queue.request import with_queue
from cloudtrain.platforms.sagemaker.resolve import check
from cloudtrain.spec import DEFAULT_MAX_RUN, TrainingInput, TrainingJob


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
    body = {
        "TrainingJobName": job.job_name,
        "RoleArn": job.role,
        "AlgorithmSpecification": algorithm_specification(job, training_image(job, region)),
        "InputDataConfig": input_data_config(job) or None,
        "OutputDataConfig": given(
            {
                "S3OutputPath": job.output_path,
                "KmsKeyId": job.output_kms_key,
                "CompressionType": "NONE" if job.disable_output_compression else None,
            }
        ),
        "ResourceConfig": resource_config(job),
        "StoppingCondition": given(
            {
                "MaxRuntimeInSeconds": job.max_run or DEFAULT_MAX_RUN,
                "MaxWaitTimeInSeconds": job.max_wait,
                "MaxPendingTimeInSeconds": job.max_pending_time_in_seconds,
            }
        ),
        "Environment": {**job.shown_environment, **_secret_names(job)} or None,
        **options(job),
        **debugger_fields(job, job.output_path, region),
    }
    return given(body)


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
    """The variable from which later calls know the job's secrets, also with SageMaker's toolkit."""
    return {HIDDEN_VARIABLES: ",".join(job.secrets)} if job.secrets else {}
