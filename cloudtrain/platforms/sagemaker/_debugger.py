"""SageMaker Debugger, its profiler and TensorBoard, as CreateTrainingJob wants them: where they are asked for."""

from __future__ import annotations

from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.sagemaker._inputs import given
from cloudtrain.spec import DebuggerHookConfig, ProfilerConfig, TrainingJob


def debugger_fields(job: TrainingJob, output_path: str) -> dict[str, Any]:
    """The fields of the request; what names no place of its own goes to ``output_path``.

    Raises InvalidJob for a profiler that is a job of its own.
    """
    tensorboard = job.tensorboard_output_config
    fields = {
        "DebugHookConfig": _hook(job.debugger_hook_config, output_path),
        "ProfilerConfig": _profiler(job, output_path),
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
    if config.profile_params:
        raise InvalidJob(
            "profiler_config.profile_params: cloudtrain does not start SageMaker's profiler jobs",
            hint="Profile in the script, with torch.profiler, say, into SM_OUTPUT_DATA_DIR.",
        )
    place = None if config.disable_profiler else config.s3_output_path or output_path
    fields = {
        "S3OutputPath": place,
        "DisableProfiler": config.disable_profiler,
        "ProfilingIntervalInMilliseconds": config.system_monitor_interval_millis,
        "ProfilingParameters": config.framework_profile_params,
    }
    return given(fields)
