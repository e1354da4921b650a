"""Tuning jobs: converts CreateTrainingJob requests to training job definitions, and sends the requests.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_HyperParameterTrainingJobDefinition.html
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.sagemaker.request_fields import given
from cloudtrain.platforms.sagemaker.training_job import TUNING, hidden

ESTIMATORS = {
    None: ("Estimator", "sagemaker.estimator"),
    "pytorch": ("PyTorch", "sagemaker.pytorch.estimator"),
    "tensorflow": ("TensorFlow", "sagemaker.tensorflow.estimator"),
    "huggingface": ("HuggingFace", "sagemaker.huggingface.estimator"),
    "mxnet": ("MXNet", "sagemaker.mxnet.estimator"),
    "sklearn": ("SKLearn", "sagemaker.sklearn.estimator"),
    "xgboost": ("XGBoost", "sagemaker.xgboost.estimator"),
}
"""By framework: the class that the SageMaker SDK uses to attach to a tuning job, and its module."""

_SHARED = (
    "RoleArn",
    "OutputDataConfig",
    "StoppingCondition",
    "InputDataConfig",
    "VpcConfig",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "RetryStrategy",
    "Environment",
)
"""Fields with the same meaning in a training job and in the training jobs of a tuning job."""

_REFUSED = {
    "ContainerEntrypoint": "container_entry_point",
    "ContainerArguments": "container_arguments",
    "TrainingImageConfig": "training_repository_access_mode",
}
"""Unsupported fields that cannot be left out: without them, another program would run, or none."""

_LEFT_OUT = {
    "DebugHookConfig": "debugger_hook_config",
    "TensorBoardOutputConfig": "tensorboard_output_config",
    "ExperimentConfig": "experiment_config",
    "InfraCheckConfig": "enable_infra_check",
    "RemoteDebugConfig": "enable_remote_debug",
    "SessionChainingConfig": "enable_session_tag_chaining",
    "MlflowConfig": "mlflow_config",
    "ModelPackageConfig": "model_package_config",
}

_PLAIN_RESOURCES = {"InstanceCount", "InstanceType", "VolumeSizeInGB", "VolumeKmsKeyId"}


def training_job_definition(
    body: Mapping[str, Any],
    tuned: Collection[str],
    *,
    metric_definitions: Sequence[Mapping[str, str]] | None = None,
    instance_configs: Sequence[Mapping[str, Any]] | None = None,
    estimator: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """The definition that all training jobs of a tuning job share.

    Args:
        body: the CreateTrainingJob request of one of them, with the runtime "toolkit".
        tuned: the names of the hyperparameters that are tuned.
        metric_definitions: if given, replace those in ``body``.
        instance_configs: the instances to choose from. If given, they replace those in ``body``.
        estimator: one of `ESTIMATORS`.

    Raises:
        InvalidJob: ``body`` has a necessary field that tuning jobs do not support.
    """
    if "jobQueue" in body:
        raise InvalidJob(
            "platform_options.job_queue: a tuning job cannot go through a queue",
            hint="Remove it. The tuner's max_parallel_jobs limits how many of its jobs run at a time.",
        )
    algorithm = dict(body["AlgorithmSpecification"])
    for field, argument in _REFUSED.items():
        if field in algorithm:
            raise InvalidJob(
                f"{argument}: not supported by SageMaker's tuning jobs",
                hint="Use an image in ECR whose entry point is the right program.",
            )
    for field, argument in _LEFT_OUT.items():
        if field in body:
            warnings.warn(
                f"{argument}: not supported by SageMaker's tuning jobs; it has no effect", stacklevel=2
            )
    values = {name: text for name, text in body.get("HyperParameters", {}).items() if name not in tuned}
    if estimator:
        values["sagemaker_estimator_class_name"] = json.dumps(estimator[0])
        values["sagemaker_estimator_module"] = json.dumps(estimator[1])
    if metric_definitions is None:
        metric_definitions = algorithm.get("MetricDefinitions")
    return {
        "StaticHyperParameters": values,
        **{name: body[name] for name in _SHARED if name in body},
        **_resources(body["ResourceConfig"], instance_configs),
        "AlgorithmSpecification": given(
            {
                "TrainingInputMode": algorithm["TrainingInputMode"],
                "TrainingImage": algorithm["TrainingImage"],
                "MetricDefinitions": metric_definitions and [dict(one) for one in metric_definitions],
            }
        ),
    }


def _resources(
    config: Mapping[str, Any], instance_configs: Sequence[Mapping[str, Any]] | None
) -> dict[str, Any]:
    """The resource field of tuning jobs, or that of training jobs if only the latter has the necessary options."""
    if instance_configs:
        key = {name: value for name, value in config.items() if name == "VolumeKmsKeyId"}
        return {"HyperParameterTuningResourceConfig": {**key, "InstanceConfigs": list(instance_configs)}}
    is_plain = set(config) <= _PLAIN_RESOURCES
    return {"HyperParameterTuningResourceConfig" if is_plain else "ResourceConfig": dict(config)}


def create(body: Mapping[str, Any], aws: Aws, secrets: Iterable[str] = ()) -> None:
    """Start a tuning job. Succeeds if an identical request, whose response was lost, has started it.

    Args:
        secrets: values in ``body`` to remove from errors.

    Raises:
        JobExists: there is another tuning job with this name.
        InvalidJob: a field of the request is wrong.
        PlatformError: SageMaker refuses the job.
    """
    with hidden(secrets):
        TUNING.start(body, aws, time.time())


def training_jobs(name: str, aws: Aws) -> list[dict[str, Any]]:
    """SageMaker's summaries of the training jobs of a tuning job. Raises JobNotFound."""
    pages = aws.client("sagemaker").get_paginator("list_training_jobs_for_hyper_parameter_tuning_job")
    with TUNING.errors(name):
        found = pages.paginate(HyperParameterTuningJobName=name, PaginationConfig={"PageSize": 100})
        return [row for page in found for row in page["TrainingJobSummaries"]]
