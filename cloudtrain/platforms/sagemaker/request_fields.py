"""Every field of CreateTrainingJob: the field of a job that sets it, or why cloudtrain does not send it.

A test compares the tables with the installed botocore, and fails when AWS has added a field that is in neither.
Paths leave out the indexes of lists. In the names of jobs' fields, ``{0}`` is the index in the request's list, and
``{channel}`` the name of the channel.
"""

from __future__ import annotations

_S3 = "InputDataConfig.DataSource.S3DataSource"
_FILES = "InputDataConfig.DataSource.FileSystemDataSource"
_HOOK = "DebugHookConfig"
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
_IMAGE_CONFIG = "AlgorithmSpecification.TrainingImageConfig"
_PLACEMENT = "instance_placement_config"

SET_BY = {
    "TrainingJobName": "job_name",
    "HyperParameters": "hyperparameters",
    "AlgorithmSpecification.TrainingImage": "image_uri",
    "AlgorithmSpecification.TrainingInputMode": "input_mode",
    "AlgorithmSpecification.MetricDefinitions": "metric_definitions",
    "AlgorithmSpecification.MetricDefinitions.Name": "metric_definitions[{0}].Name",
    "AlgorithmSpecification.MetricDefinitions.Regex": "metric_definitions[{0}].Regex",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "enable_sagemaker_metrics",
    "AlgorithmSpecification.ContainerEntrypoint": "container_entry_point",
    "AlgorithmSpecification.ContainerArguments": "container_arguments",
    f"{_IMAGE_CONFIG}.TrainingRepositoryAccessMode": "training_repository_access_mode",
    f"{_IMAGE_CONFIG}.TrainingRepositoryAuthConfig.TrainingRepositoryCredentialsProviderArn": (
        "training_repository_credentials_provider_arn"
    ),
    "RoleArn": "role",
    "InputDataConfig": "inputs",
    "InputDataConfig.ChannelName": "inputs.{channel}",
    f"{_S3}.S3DataType": "inputs.{channel}.s3_data_type",
    f"{_S3}.S3Uri": "inputs.{channel}.s3_data",
    f"{_S3}.S3DataDistributionType": "inputs.{channel}.distribution",
    f"{_S3}.AttributeNames": "inputs.{channel}.attribute_names",
    f"{_S3}.InstanceGroupNames": "inputs.{channel}.instance_groups",
    f"{_S3}.ModelAccessConfig": "inputs.{channel}.model_access_config",
    f"{_S3}.ModelAccessConfig.AcceptEula": "inputs.{channel}.model_access_config.AcceptEula",
    f"{_S3}.HubAccessConfig": "inputs.{channel}.hub_access_config",
    f"{_S3}.HubAccessConfig.HubContentArn": "inputs.{channel}.hub_access_config.HubContentArn",
    f"{_FILES}.FileSystemId": "inputs.{channel}.file_system_id",
    f"{_FILES}.FileSystemAccessMode": "inputs.{channel}.file_system_access_mode",
    f"{_FILES}.FileSystemType": "inputs.{channel}.file_system_type",
    f"{_FILES}.DirectoryPath": "inputs.{channel}.directory_path",
    "InputDataConfig.ContentType": "inputs.{channel}.content_type",
    "InputDataConfig.CompressionType": "inputs.{channel}.compression",
    "InputDataConfig.RecordWrapperType": "inputs.{channel}.record_wrapping",
    "InputDataConfig.InputMode": "inputs.{channel}.input_mode",
    "InputDataConfig.ShuffleConfig.Seed": "inputs.{channel}.shuffle_config.seed",
    "OutputDataConfig.KmsKeyId": "output_kms_key",
    "OutputDataConfig.S3OutputPath": "output_path",
    "OutputDataConfig.CompressionType": "disable_output_compression",
    "ResourceConfig.InstanceType": "instance_type",
    "ResourceConfig.InstanceCount": "instance_count",
    "ResourceConfig.VolumeSizeInGB": "volume_size",
    "ResourceConfig.VolumeKmsKeyId": "volume_kms_key",
    "ResourceConfig.KeepAlivePeriodInSeconds": "keep_alive_period_in_seconds",
    "ResourceConfig.InstanceGroups": "instance_groups",
    "ResourceConfig.InstanceGroups.InstanceType": "instance_groups[{0}].instance_type",
    "ResourceConfig.InstanceGroups.InstanceCount": "instance_groups[{0}].instance_count",
    "ResourceConfig.InstanceGroups.InstanceGroupName": "instance_groups[{0}].instance_group_name",
    "ResourceConfig.TrainingPlanArn": "training_plan",
    "ResourceConfig.InstancePlacementConfig": _PLACEMENT,
    "ResourceConfig.InstancePlacementConfig.EnableMultipleJobs": f"{_PLACEMENT}.EnableMultipleJobs",
    "ResourceConfig.InstancePlacementConfig.PlacementSpecifications": f"{_PLACEMENT}.PlacementSpecifications",
    "ResourceConfig.InstancePlacementConfig.PlacementSpecifications.UltraServerId": (
        f"{_PLACEMENT}.PlacementSpecifications[{{0}}].UltraServerId"
    ),
    "ResourceConfig.InstancePlacementConfig.PlacementSpecifications.InstanceCount": (
        f"{_PLACEMENT}.PlacementSpecifications[{{0}}].InstanceCount"
    ),
    "ResourceConfig.InstancePreferences": "instance_preferences",
    "ResourceConfig.InstancePreferences.InstanceType": "instance_preferences[{0}].instance_type",
    "ResourceConfig.InstancePreferences.InstanceCount": "instance_preferences[{0}].instance_count",
    "ResourceConfig.InstancePreferences.TrainingPlanArns": "instance_preferences[{0}].training_plan_arns",
    "VpcConfig.SecurityGroupIds": "security_group_ids",
    "VpcConfig.Subnets": "subnets",
    "StoppingCondition.MaxRuntimeInSeconds": "max_run",
    "StoppingCondition.MaxWaitTimeInSeconds": "max_wait",
    "StoppingCondition.MaxPendingTimeInSeconds": "max_pending_time_in_seconds",
    "Tags": "tags",
    "Tags.Key": "tags[{0}].Key",
    "Tags.Value": "tags[{0}].Value",
    "EnableNetworkIsolation": "enable_network_isolation",
    "EnableInterContainerTrafficEncryption": "encrypt_inter_container_traffic",
    "EnableManagedSpotTraining": "use_spot_instances",
    "CheckpointConfig.S3Uri": "checkpoint_s3_uri",
    "CheckpointConfig.LocalPath": "checkpoint_local_path",
    f"{_HOOK}.LocalPath": "debugger_hook_config.container_local_output_path",
    f"{_HOOK}.S3OutputPath": "debugger_hook_config.s3_output_path",
    f"{_HOOK}.HookParameters": "debugger_hook_config.hook_parameters",
    f"{_HOOK}.CollectionConfigurations": "debugger_hook_config.collection_configs",
    f"{_HOOK}.CollectionConfigurations.CollectionName": "debugger_hook_config.collection_configs[{0}].name",
    f"{_HOOK}.CollectionConfigurations.CollectionParameters": (
        "debugger_hook_config.collection_configs[{0}].parameters"
    ),
    "TensorBoardOutputConfig.LocalPath": "tensorboard_output_config.container_local_output_path",
    "TensorBoardOutputConfig.S3OutputPath": "tensorboard_output_config.s3_output_path",
    "ExperimentConfig": "experiment_config",
    "ExperimentConfig.ExperimentName": "experiment_config.ExperimentName",
    "ExperimentConfig.TrialName": "experiment_config.TrialName",
    "ExperimentConfig.TrialComponentDisplayName": "experiment_config.TrialComponentDisplayName",
    "ExperimentConfig.RunName": "experiment_config.RunName",
    "ProfilerConfig.S3OutputPath": "profiler_config.s3_output_path",
    "ProfilerConfig.ProfilingIntervalInMilliseconds": "profiler_config.system_monitor_interval_millis",
    "ProfilerConfig.ProfilingParameters": "profiler_config.framework_profile_params",
    "ProfilerConfig.DisableProfiler": "disable_profiler",
    **dict.fromkeys(_RULES, "rules"),
    **{f"{rules}.{field}": f"rules[{{0}}].{name}" for rules in _RULES for field, name in _OF_RULES.items()},
    "Environment": "environment",
    "RetryStrategy.MaximumRetryAttempts": "max_retry_attempts",
    "RemoteDebugConfig.EnableRemoteDebug": "enable_remote_debug",
    "InfraCheckConfig.EnableInfraCheck": "enable_infra_check",
    "SessionChainingConfig.EnableSessionTagChaining": "enable_session_tag_chaining",
    "MlflowConfig.MlflowResourceArn": "mlflow_config.mlflow_resource_arn",
    "MlflowConfig.MlflowExperimentName": "mlflow_config.mlflow_experiment_name",
    "MlflowConfig.MlflowRunName": "mlflow_config.mlflow_run_name",
    "ModelPackageConfig.ModelPackageGroupArn": "model_package_config.model_package_group_arn",
    "ModelPackageConfig.SourceModelPackageArn": "model_package_config.source_model_package_arn",
}
"""The fields of a request, and the field of a job that sets each."""

NOT_SENT = {
    "AlgorithmSpecification.AlgorithmName": "an algorithm resource; name its image in `image_uri`",
    "InputDataConfig.DataSource.DatasetSource": "only for serverless jobs; pass the URI of the data",
    "ResourceConfig.SelectedInstanceType": "read-only: SageMaker says what it selected",
    "ResourceConfig.SelectedInstanceCount": "read-only: SageMaker says what it selected",
    "ServerlessJobConfig": "fine-tuning of AWS's models without a script, an image or instances",
}
"""The fields that cloudtrain never sends, and why."""

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
"""The fields that only CreateHyperParameterTuningJob has, and the arguments of a tuner."""

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
