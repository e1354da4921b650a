"""Every field of CreateTrainingJob, with the field of a job that sets it, or why cloudtrain does not send it.

`request_fields` renders a job with this table. Errors about a request, `Estimator.attach` and pipelines use it, too. A
test compares the tables with the installed botocore, and fails if AWS has added a field that neither contains. Paths
omit the indexes of lists. In the names of jobs' fields, ``{0}`` is the index in the request's list, and ``{channel}``
the name of the channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import Channel, TrainingInput, TrainingJob
from cloudtrain.spec.inputs import CHANNEL_FIELDS, FILE_SYSTEM_FIELDS, S3_FIELDS

_S3 = "InputDataConfig.DataSource.S3DataSource"
_FILES = "InputDataConfig.DataSource.FileSystemDataSource"
_IMAGE_CONFIG = "AlgorithmSpecification.TrainingImageConfig"
_PLACEMENT = "ResourceConfig.InstancePlacementConfig"
_COLLECTIONS = "DebugHookConfig.CollectionConfigurations"
_RULES = ("DebugRuleConfigurations", "ProfilerRuleConfigurations")
_OF_RULES = {
    "RuleConfigurationName": "name",
    "RuleEvaluatorImage": "image_uri",
    "InstanceType": "instance_type",
    "VolumeSizeInGB": "volume_size_in_gb",
    "LocalPath": "container_local_output_path",
    "S3OutputPath": "s3_output_path",
    "RuleParameters": "rule_parameters",
}

SET_BY = {
    "TrainingJobName": "job_name",
    "RoleArn": "role",
    "AlgorithmSpecification.TrainingInputMode": "input_mode",
    "AlgorithmSpecification.TrainingImage": "image_uri",
    f"{_IMAGE_CONFIG}.TrainingRepositoryAccessMode": "training_repository_access_mode",
    f"{_IMAGE_CONFIG}.TrainingRepositoryAuthConfig.TrainingRepositoryCredentialsProviderArn": (
        "training_repository_credentials_provider_arn"
    ),
    "AlgorithmSpecification.ContainerEntrypoint": "container_entry_point",
    "AlgorithmSpecification.ContainerArguments": "container_arguments",
    "AlgorithmSpecification.MetricDefinitions": "metric_definitions",
    "AlgorithmSpecification.MetricDefinitions.Name": "metric_definitions[{0}].Name",
    "AlgorithmSpecification.MetricDefinitions.Regex": "metric_definitions[{0}].Regex",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "enable_sagemaker_metrics",
    "InputDataConfig": "inputs",
    "InputDataConfig.ChannelName": "inputs.{channel}",
    **{f"{_S3}.{field}": f"inputs.{{channel}}.{name}" for field, name in S3_FIELDS.items()},
    f"{_S3}.ModelAccessConfig.AcceptEula": "inputs.{channel}.model_access_config.AcceptEula",
    f"{_S3}.HubAccessConfig.HubContentArn": "inputs.{channel}.hub_access_config.HubContentArn",
    **{f"{_FILES}.{field}": f"inputs.{{channel}}.{name}" for field, name in FILE_SYSTEM_FIELDS.items()},
    **{f"InputDataConfig.{field}": f"inputs.{{channel}}.{name}" for field, name in CHANNEL_FIELDS.items()},
    "InputDataConfig.ShuffleConfig.Seed": "inputs.{channel}.shuffle_config.seed",
    "OutputDataConfig.S3OutputPath": "output_path",
    "OutputDataConfig.KmsKeyId": "output_kms_key",
    "OutputDataConfig.CompressionType": "disable_output_compression",
    "ResourceConfig.VolumeSizeInGB": "volume_size",
    "ResourceConfig.VolumeKmsKeyId": "volume_kms_key",
    "ResourceConfig.KeepAlivePeriodInSeconds": "keep_alive_period_in_seconds",
    "ResourceConfig.InstanceGroups": "instance_groups",
    "ResourceConfig.InstanceGroups.InstanceGroupName": "instance_groups[{0}].instance_group_name",
    "ResourceConfig.InstanceGroups.InstanceType": "instance_groups[{0}].instance_type",
    "ResourceConfig.InstanceGroups.InstanceCount": "instance_groups[{0}].instance_count",
    "ResourceConfig.InstancePreferences": "instance_preferences",
    "ResourceConfig.InstancePreferences.InstanceType": "instance_preferences[{0}].instance_type",
    "ResourceConfig.InstancePreferences.InstanceCount": "instance_preferences[{0}].instance_count",
    "ResourceConfig.InstancePreferences.TrainingPlanArns": "instance_preferences[{0}].training_plan_arns",
    "ResourceConfig.InstanceCount": "instance_count",
    "ResourceConfig.InstanceType": "instance_type",
    "ResourceConfig.TrainingPlanArn": "training_plan",
    _PLACEMENT: "instance_placement_config",
    f"{_PLACEMENT}.EnableMultipleJobs": "instance_placement_config.EnableMultipleJobs",
    f"{_PLACEMENT}.PlacementSpecifications": "instance_placement_config.PlacementSpecifications",
    f"{_PLACEMENT}.PlacementSpecifications.UltraServerId": (
        "instance_placement_config.PlacementSpecifications[{0}].UltraServerId"
    ),
    f"{_PLACEMENT}.PlacementSpecifications.InstanceCount": (
        "instance_placement_config.PlacementSpecifications[{0}].InstanceCount"
    ),
    "StoppingCondition.MaxRuntimeInSeconds": "max_run",
    "StoppingCondition.MaxWaitTimeInSeconds": "max_wait",
    "StoppingCondition.MaxPendingTimeInSeconds": "max_pending_time_in_seconds",
    "HyperParameters": "hyperparameters",
    "Environment": "environment",
    "EnableManagedSpotTraining": "use_spot_instances",
    "EnableNetworkIsolation": "enable_network_isolation",
    "EnableInterContainerTrafficEncryption": "encrypt_inter_container_traffic",
    "VpcConfig.Subnets": "subnets",
    "VpcConfig.SecurityGroupIds": "security_group_ids",
    "RetryStrategy.MaximumRetryAttempts": "max_retry_attempts",
    "CheckpointConfig.S3Uri": "checkpoint_s3_uri",
    "CheckpointConfig.LocalPath": "checkpoint_local_path",
    "Tags": "tags",
    "Tags.Key": "tags[{0}].Key",
    "Tags.Value": "tags[{0}].Value",
    "ExperimentConfig": "experiment_config",
    "ExperimentConfig.ExperimentName": "experiment_config.ExperimentName",
    "ExperimentConfig.TrialName": "experiment_config.TrialName",
    "ExperimentConfig.TrialComponentDisplayName": "experiment_config.TrialComponentDisplayName",
    "ExperimentConfig.RunName": "experiment_config.RunName",
    "MlflowConfig.MlflowResourceArn": "mlflow_config.mlflow_resource_arn",
    "MlflowConfig.MlflowExperimentName": "mlflow_config.mlflow_experiment_name",
    "MlflowConfig.MlflowRunName": "mlflow_config.mlflow_run_name",
    "ModelPackageConfig.ModelPackageGroupArn": "model_package_config.model_package_group_arn",
    "ModelPackageConfig.SourceModelPackageArn": "model_package_config.source_model_package_arn",
    "InfraCheckConfig.EnableInfraCheck": "enable_infra_check",
    "RemoteDebugConfig.EnableRemoteDebug": "enable_remote_debug",
    "SessionChainingConfig.EnableSessionTagChaining": "enable_session_tag_chaining",
    "DebugHookConfig": "debugger_hook_config",
    "DebugHookConfig.S3OutputPath": "debugger_hook_config.s3_output_path",
    "DebugHookConfig.LocalPath": "debugger_hook_config.container_local_output_path",
    "DebugHookConfig.HookParameters": "debugger_hook_config.hook_parameters",
    _COLLECTIONS: "debugger_hook_config.collection_configs",
    f"{_COLLECTIONS}.CollectionName": "debugger_hook_config.collection_configs[{0}].name",
    f"{_COLLECTIONS}.CollectionParameters": "debugger_hook_config.collection_configs[{0}].parameters",
    _RULES[0]: "rules",
    "ProfilerConfig": "profiler_config",
    "ProfilerConfig.S3OutputPath": "profiler_config.s3_output_path",
    "ProfilerConfig.DisableProfiler": "disable_profiler",
    "ProfilerConfig.ProfilingIntervalInMilliseconds": "profiler_config.system_monitor_interval_millis",
    "ProfilerConfig.ProfilingParameters": "profiler_config.framework_profile_params",
    _RULES[1]: "rules",
    **{f"{rules}.{field}": f"rules[{{0}}].{name}" for rules in _RULES for field, name in _OF_RULES.items()},
    "TensorBoardOutputConfig.S3OutputPath": "tensorboard_output_config.s3_output_path",
    "TensorBoardOutputConfig.LocalPath": "tensorboard_output_config.container_local_output_path",
}
"""The fields of a request, in their order, with the field of a job that sets each."""

NOT_SENT = {
    "AlgorithmSpecification.AlgorithmName": "an algorithm resource; name its image in `image_uri`",
    "InputDataConfig.DataSource.DatasetSource": "only for serverless jobs; pass the URI of the data",
    "ResourceConfig.SelectedInstanceType": "read-only: SageMaker says what it selected",
    "ResourceConfig.SelectedInstanceCount": "read-only: SageMaker says what it selected",
    "ServerlessJobConfig": "fine-tuning of AWS's models without a script, an image or instances",
}
"""The fields that cloudtrain never sends, with the reason."""

_TUNING = "HyperParameterTuningJobConfig"

TUNER_ARGUMENTS = {
    "HyperParameterTuningJobName": "job_name",
    f"{_TUNING}.Strategy": "strategy",
    f"{_TUNING}.StrategyConfig": "strategy_config",
    f"{_TUNING}.HyperParameterTuningJobObjective.Type": "objective_type",
    f"{_TUNING}.HyperParameterTuningJobObjective.MetricName": "objective_metric_name",
    f"{_TUNING}.ResourceLimits.MaxNumberOfTrainingJobs": "max_jobs",
    f"{_TUNING}.ResourceLimits.MaxParallelTrainingJobs": "max_parallel_jobs",
    f"{_TUNING}.ResourceLimits.MaxRuntimeInSeconds": "max_runtime_in_seconds",
    f"{_TUNING}.ParameterRanges": "hyperparameter_ranges",
    f"{_TUNING}.ParameterRanges.AutoParameters": "hyperparameters",
    f"{_TUNING}.TrainingJobEarlyStoppingType": "early_stopping_type",
    f"{_TUNING}.TuningJobCompletionCriteria": "completion_criteria_config",
    f"{_TUNING}.RandomSeed": "random_seed",
    "DefinitionName": "estimator_name",
    "TuningObjective.Type": "objective_type",
    "TuningObjective.MetricName": "objective_metric_name",
    "HyperParameterRanges": "hyperparameter_ranges",
    "StaticHyperParameters": "hyperparameters",
    "ResourceConfig.InstanceConfigs": "instance_configs",
    "ResourceConfig.InstanceConfigs.InstanceType": "instance_configs[{0}].instance_type",
    "ResourceConfig.InstanceConfigs.InstanceCount": "instance_configs[{0}].instance_count",
    "ResourceConfig.InstanceConfigs.VolumeSizeInGB": "instance_configs[{0}].volume_size",
    "TrainingJobDefinitions": "estimators",
    "WarmStartConfig": "warm_start_config",
    "WarmStartConfig.ParentHyperParameterTuningJobs.HyperParameterTuningJobName": "warm_start_config.parents",
    "Autotune": "autotune",
}
"""The fields that only CreateHyperParameterTuningJob has, with the argument of a tuner that sets each."""

EXAMPLES = {
    "role": "arn:aws:iam::123456789012:role/Train",
    "training_plan": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/my-plan",
    "training_plan_arns": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/my-plan",
    "training_repository_credentials_provider_arn": "arn:aws:lambda:us-east-1:123456789012:function:credentials",
    "mlflow_resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/my-server",
    "model_package_group_arn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/my-group",
    "source_model_package_arn": "arn:aws:sagemaker:us-east-1:123456789012:model-package/my-group/1",
    "file_system_id": "fs-0123456789abcdef0",
    "subnets": "subnet-0123456789abcdef0",
    "security_group_ids": "sg-0123456789abcdef0",
    "output_kms_key": "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "volume_kms_key": "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "job_name": "train-resnet-01",
}
"""Valid values, by the last part of a field's name."""


def request_fields(
    part: Struct,
    place: str = "",
    name: str = "",
    computed: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The fields of the request at ``place`` that ``part``, a job or a part of one, sets.

    Fields that are None, or empty by default, are left out.

    Args:
        name: the name of ``part`` in a job, as in `SET_BY`.
        computed: values by their paths below ``place``, which replace those of ``part``; None leaves a field out.
    """
    body: dict[str, Any] = {}
    for path, attribute in _fields_of(place, name):
        value = computed[path] if path in computed else get_path(part, attribute)
        if isinstance(value, list) and value and isinstance(value[0], Struct):
            inner = f"{name}.{attribute}".lstrip(".") + "[{0}]"
            value = [request_fields(one, f"{place}.{path}".lstrip("."), inner) for one in value]
        if value is None or (not value and not name and value == getattr(_EMPTY, attribute, None)):
            continue
        *parents, last = path.split(".")
        found = body
        for parent in parents:
            found = found.setdefault(parent, {})
        found[last] = value
    return body


def get_path(value: Any, path: str) -> Any:
    """The value at a dotted path of attributes, or of keys of mappings; None if a part of it is missing."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


_EMPTY = TrainingJob()


@cache
def _fields_of(place: str, name: str) -> list[tuple[str, str]]:
    """The paths below ``place`` with the attributes below ``name``, without fields inside of other fields."""
    found: list[tuple[str, str]] = []
    for path, field in SET_BY.items():
        if not path.startswith(f"{place}." if place else "") or not field.startswith(
            f"{name}." if name else ""
        ):
            continue
        path, field = path[len(place) :].lstrip("."), field[len(name) :].lstrip(".")
        if not any(path.startswith(f"{outer}.") for outer, _ in found):
            found.append((path, field))
    return found


MODEL_CONTENT_TYPE = "application/x-sagemaker-model"


def input_data_config(job: TrainingJob) -> list[dict[str, Any]]:
    """The inputs, then the model to start from. Raises InvalidJob for data that is not in S3."""
    channels = [channel_config(name, channel) for name, channel in job.inputs.items()]
    if job.model_uri:
        model = TrainingInput(job.model_uri, content_type=MODEL_CONTENT_TYPE, input_mode="File")
        channels.append(channel_config(job.model_channel_name, model))
    return channels


def channel_config(name: str, channel: Channel) -> dict[str, Any]:
    """One entry of ``InputDataConfig``."""
    if isinstance(channel, TrainingInput):
        check_s3(f"inputs.{name}", channel.s3_data)
    return {"ChannelName": name, **channel.config}


def check_s3(field: str, uri: str | None) -> None:
    """Raises InvalidJob if ``uri`` is not in S3."""
    if uri is not None and not uri.startswith("s3://"):
        raise InvalidJob(
            f"{field}: SageMaker reads and writes S3, not {uri}",
            hint="Name a folder in a bucket: s3://bucket/prefix.",
        )


def given(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` without values that are None."""
    return {key: value for key, value in config.items() if value is not None}
