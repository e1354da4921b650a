"""The fields of CreateTrainingJob for instances, limits, networks and permissions."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.image_data import numbers
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.sagemaker.inputs import given
from cloudtrain.spec import MlflowConfig, ModelPackageConfig, TrainingJob

_METRICS_SINCE = {"pytorch": (1, 3), "tensorflow": (1, 15), "mxnet": (1, 6)}
"""The first versions of frameworks whose images write metrics as time series."""


def resource_config(job: TrainingJob) -> dict[str, Any]:
    """The field ``ResourceConfig``. Raises InvalidJob if there is no instance type."""
    if not job.instance_types:
        raise InvalidJob(
            "instance_type: SageMaker needs one", hint="For example: instance_type='ml.g5.xlarge'."
        )
    groups = [
        {
            "InstanceGroupName": group.instance_group_name,
            "InstanceType": group.instance_type,
            "InstanceCount": group.instance_count,
        }
        for group in job.instance_groups
    ]
    preferences = [
        given(
            {
                "InstanceType": one.instance_type,
                "InstanceCount": one.instance_count,
                "TrainingPlanArns": one.training_plan_arns,
            }
        )
        for one in job.instance_preferences
    ]
    counted = bool(groups) or any("InstanceCount" in one for one in preferences)
    return given(
        {
            "VolumeSizeInGB": job.volume_size,
            "VolumeKmsKeyId": job.volume_kms_key,
            "KeepAlivePeriodInSeconds": job.keep_alive_period_in_seconds,
            "InstanceGroups": groups or None,
            "InstancePreferences": preferences or None,
            "InstanceCount": None if counted else job.instance_count,
            "InstanceType": job.instance_type,
            "TrainingPlanArn": job.training_plan,
            "InstancePlacementConfig": job.instance_placement_config or None,
        }
    )


def algorithm_specification(job: TrainingJob, image: str) -> dict[str, Any]:
    repository = None
    if job.training_repository_access_mode:
        arn = job.training_repository_credentials_provider_arn
        repository = given(
            {
                "TrainingRepositoryAccessMode": job.training_repository_access_mode,
                "TrainingRepositoryAuthConfig": arn and {"TrainingRepositoryCredentialsProviderArn": arn},
            }
        )
    return given(
        {
            "TrainingInputMode": job.input_mode,
            "TrainingImage": image,
            "TrainingImageConfig": repository,
            "ContainerEntrypoint": job.container_entry_point,
            "ContainerArguments": job.container_arguments,
            "MetricDefinitions": job.metric_definitions or None,
            "EnableSageMakerMetricsTimeSeries": _metrics(job),
        }
    )


def options(job: TrainingJob) -> dict[str, Any]:
    """The fields that a request has only if the job uses them."""
    retries = job.max_retry_attempts
    vpc = {"Subnets": job.subnets, "SecurityGroupIds": job.security_group_ids}
    return given(
        {
            "EnableManagedSpotTraining": job.use_spot_instances or None,
            "EnableNetworkIsolation": job.enable_network_isolation or None,
            "EnableInterContainerTrafficEncryption": job.encrypt_inter_container_traffic or None,
            "VpcConfig": vpc if job.subnets else None,
            "RetryStrategy": {"MaximumRetryAttempts": retries} if retries else None,
            "CheckpointConfig": job.checkpoint_s3_uri
            and given({"S3Uri": job.checkpoint_s3_uri, "LocalPath": job.checkpoint_local_path}),
            "Tags": job.tags or None,
            "ExperimentConfig": job.experiment_config or None,
            "MlflowConfig": job.mlflow_config and _mlflow(job.mlflow_config),
            "ModelPackageConfig": job.model_package_config and _model_package(job.model_package_config),
            "InfraCheckConfig": _switch("EnableInfraCheck", job.enable_infra_check),
            "RemoteDebugConfig": _switch("EnableRemoteDebug", job.enable_remote_debug),
            "SessionChainingConfig": _switch("EnableSessionTagChaining", job.enable_session_tag_chaining),
        }
    )


def _mlflow(config: MlflowConfig) -> dict[str, str]:
    return given(
        {
            "MlflowResourceArn": config.mlflow_resource_arn,
            "MlflowExperimentName": config.mlflow_experiment_name,
            "MlflowRunName": config.mlflow_run_name,
        }
    )


def _model_package(config: ModelPackageConfig) -> dict[str, str]:
    return given(
        {
            "ModelPackageGroupArn": config.model_package_group_arn,
            "SourceModelPackageArn": config.source_model_package_arn,
        }
    )


def _switch(name: str, value: bool | None) -> dict[str, bool] | None:
    return None if value is None else {name: value}


def _metrics(job: TrainingJob) -> bool | None:
    if job.enable_sagemaker_metrics is not None or job.framework is None:
        return job.enable_sagemaker_metrics
    if job.framework == "huggingface":
        return True
    since = _METRICS_SINCE.get(job.framework)
    is_new = since and job.framework_version and numbers(job.framework_version) >= since
    return True if is_new else None
