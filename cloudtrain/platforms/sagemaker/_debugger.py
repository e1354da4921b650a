"""The fields of CreateTrainingJob for SageMaker Debugger, its profiler and TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from cloudtrain.aws.image_data import numbers
from cloudtrain.aws.images import profiler_image, rules_image
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.sagemaker.request_fields import given, request_fields
from cloudtrain.spec import CollectionConfig, DebuggerHookConfig, ProfilerConfig, Rule, TrainingJob

PROFILER_RULE = "DetailedProfilerProcessingJobConfig"

PROFILER_INSTANCE = {"InstanceType": "ml.m5.4xlarge", "VolumeSizeInGB": 128}
"""The instance of the processing job that SageMaker Profiler runs alongside the training job."""

_NOT_PROFILED = {"pytorch": (2, 0), "tensorflow": (2, 11)}
"""The first versions of frameworks for which AWS has retired framework profiling."""


def debugger_fields(job: TrainingJob, output_path: str, region: str) -> dict[str, Any]:
    """The fields of the request. Outputs without their own path go to ``output_path``.

    Raises InvalidJob if the region lacks a service, or ``rules`` need the profiler and ``disable_profiler`` is set.
    """
    rules = [rule for rule in job.rules if not rule.profiles]
    profiler_rules = [rule for rule in job.rules if rule.profiles]
    if profiler_rules and job.disable_profiler:
        raise InvalidJob(
            f"rules: {profiler_rules[0].name} needs the profiler, and disable_profiler is set",
            hint="Remove one of them.",
        )
    return {
        "DebugHookConfig": _hook(job, rules, output_path),
        "DebugRuleConfigurations": [_rule(rule, job, region) for rule in rules] or None,
        "ProfilerConfig": _profiler(job, output_path, has_rules=bool(profiler_rules)),
        "ProfilerRuleConfigurations": [_rule(rule, job, region) for rule in profiler_rules]
        or _default_profiler_rules(job, region),
    }


def retired(job: TrainingJob) -> Iterator[str]:
    """A warning, one sentence, for each field of ``job`` that requests a feature which AWS has retired."""
    if job.compiler_config:
        yield (
            "compiler_config: AWS makes no new releases of SageMaker Training Compiler, and does not update the "
            "images that have it"
        )
    first = _NOT_PROFILED.get(job.framework or "")
    is_profiled = job.profiler_config and job.profiler_config.framework_profile_params
    if is_profiled and first and job.framework_version and numbers(job.framework_version)[:2] >= first:
        yield (
            f"profiler_config.framework_profile_params: AWS has retired framework profiling, and its images of "
            f"{job.framework} {job.framework_version} do not have it"
        )


def _hook(job: TrainingJob, rules: list[Rule], output_path: str) -> dict[str, Any] | None:
    """The job's hook, with the collections that its rules need; None if neither needs a hook."""
    hook = job.debugger_hook_config
    if hook is False or (hook is None and not rules):
        return None
    if hook is None or hook is True:
        hook = DebuggerHookConfig()
    collections: list[CollectionConfig] = []
    for one in [*(one for rule in rules for one in rule.collections_to_save), *hook.collection_configs]:
        if one not in collections:
            collections.append(one)
    place = hook.s3_output_path or output_path
    hook = structs.replace(hook, s3_output_path=place, collection_configs=collections)
    return request_fields(hook, "DebugHookConfig", "debugger_hook_config")


def _rule(rule: Rule, job: TrainingJob, region: str) -> dict[str, Any]:
    """One rule. AWS's own image selects its instances."""
    parameters = dict(rule.rule_parameters)
    if rule.actions:
        parameters["action_json"] = _actions(rule.actions, str(job.job_name))
    computed = {
        "RuleEvaluatorImage": rule.image_uri or rules_image(region),
        "InstanceType": rule.instance_type if rule.image_uri else None,
        "VolumeSizeInGB": rule.volume_size_in_gb if rule.image_uri else None,
        "RuleParameters": parameters or None,
    }
    return request_fields(rule, "DebugRuleConfigurations", "rules[{0}]", computed)


def _actions(actions: list[dict[str, str]] | dict[str, str], job_name: str) -> str:
    """The actions in the notation of AWS's image: JSON with escaped quotes."""
    if isinstance(actions, list):
        return f"[{', '.join(_actions(action, job_name) for action in actions)}]"
    if actions.get("name") == "stoptraining" and "training_job_prefix" not in actions:
        actions = {**actions, "training_job_prefix": job_name}
    pairs = (f'\\"{name}\\": \\"{value}\\"' for name, value in actions.items())
    return "{" + ", ".join(pairs) + "}"


def _profiler(job: TrainingJob, output_path: str, *, has_rules: bool) -> dict[str, Any] | None:
    config = job.profiler_config or (ProfilerConfig() if has_rules else None)
    if config is None:
        return {"DisableProfiler": True} if job.disable_profiler else None
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


def _default_profiler_rules(job: TrainingJob, region: str) -> list[dict[str, Any]] | None:
    """The rule with which SageMaker Profiler analyses its results, if the job has no rules for the profiler."""
    if not job.profiler_config or not job.profiler_config.profile_params:
        return None
    rule = {
        "RuleConfigurationName": f"{PROFILER_RULE}-{job.job_name}",
        "RuleEvaluatorImage": profiler_image(region),
        **PROFILER_INSTANCE,
        "RuleParameters": {"rule_to_invoke": "DetailedProfilerProcessing"},
    }
    return [rule]
