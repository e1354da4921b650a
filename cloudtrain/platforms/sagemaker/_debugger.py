"""The fields of CreateTrainingJob for SageMaker Debugger, its profiler and TensorBoard."""

from __future__ import annotations

from typing import Any

from cloudtrain.aws.images import profiler_image
from cloudtrain.platforms.sagemaker.inputs import given
from cloudtrain.spec import DebuggerHookConfig, ProfilerConfig, TrainingJob

PROFILER_RULE = "DetailedProfilerProcessingJobConfig"

PROFILER_INSTANCE = {"InstanceType": "ml.m5.4xlarge", "VolumeSizeInGB": 128}
"""The instance of the job that SageMaker Profiler runs alongside the training."""


def debugger_fields(job: TrainingJob, output_path: str, region: str) -> dict[str, Any]:
    """The fields of the request. Outputs without their own path go to ``output_path``.

    Raises InvalidJob if the region has no SageMaker Profiler.
    """
    tensorboard = job.tensorboard_output_config
    profiles = job.profiler_config and job.profiler_config.profile_params
    fields = {
        "DebugHookConfig": _hook(job.debugger_hook_config, output_path),
        "ProfilerConfig": _profiler(job, output_path),
        "ProfilerRuleConfigurations": [_profiler_rule(job, region)] if profiles else None,
        "TensorBoardOutputConfig": tensorboard
        and given(
            {
                "S3OutputPath": tensorboard.s3_output_path,
                "LocalPath": tensorboard.container_local_output_path,
            }
        ),
    }
    return given(fields)


def _hook(hook: DebuggerHookConfig | bool | None, output_path: str) -> dict[str, Any] | None:
    if not hook:
        return None
    if hook is True:
        hook = DebuggerHookConfig()
    fields = {
        "S3OutputPath": hook.s3_output_path or output_path,
        "LocalPath": hook.container_local_output_path,
        "HookParameters": hook.hook_parameters,
        "CollectionConfigurations": [
            given({"CollectionName": collection.name, "CollectionParameters": collection.parameters})
            for collection in hook.collection_configs
        ],
    }
    return given(fields)


def _profiler(job: TrainingJob, output_path: str) -> dict[str, Any] | None:
    config = job.profiler_config
    if config is None:
        return {"DisableProfiler": True} if job.disable_profiler else None
    return _profiler_fields(config, output_path)


def _profiler_fields(config: ProfilerConfig, output_path: str) -> dict[str, Any]:
    place = None if config.disable_profiler else config.s3_output_path or output_path
    parameters: dict[str, str] | None = config.framework_profile_params
    if config.profile_params:
        parameters = {
            "CPUProfilingDuration": str(config.profile_params.cpu_profiling_duration),
            "SMPFileRotationSecs": str(config.profile_params.file_rotation_interval),
        }
    fields = {
        "S3OutputPath": place,
        "DisableProfiler": config.disable_profiler,
        "ProfilingIntervalInMilliseconds": config.system_monitor_interval_millis,
        "ProfilingParameters": parameters,
    }
    return given(fields)


def _profiler_rule(job: TrainingJob, region: str) -> dict[str, Any]:
    return {
        "RuleConfigurationName": f"{PROFILER_RULE}-{job.job_name}",
        "RuleEvaluatorImage": profiler_image(region),
        **PROFILER_INSTANCE,
        "RuleParameters": {"rule_to_invoke": "DetailedProfilerProcessing"},
    }
