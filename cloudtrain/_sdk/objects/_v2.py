"""Version 2: ``Estimator`` and the framework estimators."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import FileSystemInput, ShuffleConfig, TrainingInput
from cloudtrain.spec.inputs import CHANNEL_FIELDS, FILE_SYSTEM_FIELDS, S3_FIELDS
from cloudtrain.spec.variables import is_variable

FRAMEWORKS = {
    "PyTorch": "pytorch",
    "TensorFlow": "tensorflow",
    "HuggingFace": "huggingface",
    "MXNet": "mxnet",
    "SKLearn": "sklearn",
    "XGBoost": "xgboost",
    "Estimator": None,
}
"""The supported classes, and the framework of each."""

LOCAL_TYPES = ("local", "local_gpu")
"""The instance types of the SDK's local mode, which runs containers on this machine."""

SAME = (
    "base_job_name",
    "checkpoint_local_path",
    "checkpoint_s3_uri",
    "code_location",
    "container_arguments",
    "container_entry_point",
    "container_log_level",
    "dependencies",
    "disable_output_compression",
    "disable_profiler",
    "distribution",
    "enable_infra_check",
    "enable_sagemaker_metrics",
    "encrypt_inter_container_traffic",
    "entry_point",
    "environment",
    "image_uri",
    "input_mode",
    "instance_groups",
    "instance_placement_config",
    "keep_alive_period_in_seconds",
    "max_retry_attempts",
    "max_run",
    "max_wait",
    "metric_definitions",
    "model_channel_name",
    "model_dir",
    "model_uri",
    "output_kms_key",
    "py_version",
    "pytorch_version",
    "role",
    "security_group_ids",
    "source_dir",
    "subnets",
    "tags",
    "tensorflow_version",
    "training_plan",
    "training_repository_access_mode",
    "training_repository_credentials_provider_arn",
    "use_spot_instances",
    "volume_kms_key",
    "volume_size",
)
"""Attributes that have the same name as the argument."""

_AWS_RULES = "DEFAULT_RULE_EVALUATOR_IMAGE"
"""The placeholder for the image of AWS's own rules until a job starts."""

RECIPE = ("is_nova_job", "is_nova_or_eval_recipe", "is_llmft_recipe", "training_recipe_file")
"""Attributes that are set for a training recipe."""

OWN_PREFIX = "sagemaker_"
"""The prefix of the hyperparameters that the SDK adds when it starts a job."""


def read_estimator(obj: Any, instance_type: str | None = None, *, finds_image: bool = True) -> dict[str, Any]:
    """The arguments of ``obj``. Raises InvalidJob for an unsupported class or a training recipe of AWS.

    Args:
        instance_type: replaces that of ``obj``.
        finds_image: whether to get the image of local mode from the SDK.
    """
    kind = next((name for name in _classes(obj) if name in FRAMEWORKS), None)
    if kind is None or any("jumpstart" in base.__module__ for base in type(obj).__mro__):
        raise InvalidJob(
            f"from_sagemaker: {type(obj).__name__} is not supported",
            hint="Make a cloudtrain.Estimator with its image_uri and the same arguments.",
        )
    if any(get(obj, name) for name in RECIPE):
        raise InvalidJob(
            "from_sagemaker: a training_recipe is not supported",
            hint="Pass the recipe's script as entry_point, and its values as hyperparameters.",
        )
    framework = FRAMEWORKS[kind]
    # fit() sets a default path, which the user did not set
    is_default_path = get(obj, "_is_output_path_set_from_default_bucket_and_prefix")
    version = get(obj, "framework_version") if framework else None
    session = get(obj, "sagemaker_session")
    arguments = given(
        {
            **{name: get(obj, name) for name in SAME},
            **_instances(obj, instance_type, finds_image),
            # fit() replaces the paths with those in its clone
            "git_config": None if os.path.isabs(get(obj, "entry_point") or "") else get(obj, "git_config"),
            "framework": framework,
            "transformers_version" if framework == "huggingface" else "framework_version": version,
            "hyperparameters": _hyperparameters(
                obj, is_encoded=not framework and bool(get(obj, "source_dir"))
            ),
            "output_path": None if is_default_path else get(obj, "output_path"),
            "enable_network_isolation": get(obj, "_enable_network_isolation"),
            "enable_remote_debug": get(obj, "_enable_remote_debug"),
            "enable_session_tag_chaining": get(obj, "_enable_session_tag_chaining"),
            "debugger_hook_config": _debugger_hook(obj),
            "rules": [_rule(rule) for rule in get(obj, "rules") or []] or None,
            "compiler_config": _named(get(obj, "compiler_config"), "enabled", "debug"),
            "profiler_config": _profiler(obj),
            "tensorboard_output_config": _output_paths(get(obj, "tensorboard_output_config")),
        }
    )
    return {**arguments, **({"sagemaker_session": session} if session is not None else {})}


def read_input(channel: Any) -> TrainingInput | FileSystemInput:
    """A channel from the SDK's ``TrainingInput`` or ``FileSystemInput``, which store it as in the API request."""
    config = channel.config
    source = config["DataSource"].get("FileSystemDataSource")
    if source:
        return FileSystemInput(**_read(source, FILE_SYSTEM_FIELDS), content_type=config.get("ContentType"))
    shuffle = config.get("ShuffleConfig")
    return TrainingInput(
        **_read(config["DataSource"]["S3DataSource"], S3_FIELDS),
        **_read(config, CHANNEL_FIELDS),
        shuffle_config=ShuffleConfig(shuffle["Seed"]) if shuffle else None,
    )


def _read(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {name: config[field] for field, name in names.items() if field in config}


def _classes(obj: Any) -> list[str]:
    return [kind.__name__ for kind in type(obj).__mro__ if kind.__module__.startswith("sagemaker.")]


def _hyperparameters(obj: Any, *, is_encoded: bool) -> dict[str, Any]:
    """The user's hyperparameters; an ``Estimator`` with a ``source_dir`` keeps each value as JSON."""
    values = {
        name: value
        for name, value in (get(obj, "_hyperparameters") or {}).items()
        if not (isinstance(name, str) and name.startswith(OWN_PREFIX))
    }
    return {name: json.loads(text) for name, text in values.items()} if is_encoded else values


def _instances(obj: Any, instance_type: str | None, finds_image: bool) -> dict[str, Any]:
    """The hosts. The SDK's local mode becomes the container platform, with the same image and GPUs."""
    if get(obj, "instance_groups"):
        return {}
    kind = instance_type or get(obj, "instance_type")
    local: dict[str, Any] = {"platform": "container"} if kind in LOCAL_TYPES else {}
    if local and finds_image:
        local["image_uri"] = _local_image(obj)
    return {**local, "instance_type": kind, "instance_count": get(obj, "instance_count")}


def _local_image(obj: Any) -> str | None:
    """The image that local mode would run: the image of the estimator, or AWS's image for its framework."""
    find_image = get(obj, "training_image_uri")
    if get(obj, "image_uri") or find_image is None:
        return get(obj, "image_uri")  # type: ignore[no-any-return]
    try:
        return str(find_image())
    except Exception as error:  # the SDK may also call AWS
        raise InvalidJob(
            f"from_sagemaker: the SDK finds no image: {error}", hint="Pass image_uri."
        ) from error


def _debugger_hook(obj: Any) -> Any:
    hook = get(obj, "debugger_hook_config")
    if hook is None or isinstance(hook, bool):
        return hook
    if hook == {}:  # the SDK stores True like this
        return True
    return given(
        {
            **_output_paths(hook),
            "hook_parameters": get(hook, "hook_parameters"),
            "collection_configs": _collections(hook),
        }
    )


def _collections(obj: Any) -> list[dict[str, Any]]:
    """The collections of a hook or a rule."""
    return [_named(one, "name", "parameters") or {} for one in get(obj, "collection_configs") or []]


def _rule(rule: Any) -> dict[str, Any]:
    image = get(rule, "image_uri")
    is_own = image != _AWS_RULES
    names = ("instance_type", "volume_size_in_gb") if is_own else ()
    actions = get(rule, "actions")
    several = get(actions, "actions")
    return given(
        {
            **(_named(rule, "name", "container_local_output_path", "s3_output_path", *names) or {}),
            "image_uri": image if is_own else None,
            "rule_parameters": {
                name: str(value) for name, value in (get(rule, "rule_parameters") or {}).items()
            },
            "collections_to_save": _collections(rule),
            "actions": [one.action_parameters for one in several]
            if several
            else get(actions, "action_parameters"),
            "profiles": "ProfilerRule" in _classes(rule),
        }
    )


def _profiler(obj: Any) -> dict[str, Any] | None:
    config = get(obj, "profiler_config")
    if config is None:
        return None
    profiler = get(config, "profile_params")
    names = ("s3_output_path", "system_monitor_interval_millis", "disable_profiler")
    return given(
        {
            **{name: get(config, name) for name in names},
            "framework_profile_params": get(config, "framework_profile_params.profiling_parameters"),
            "profile_params": profiler
            and {
                "cpu_profiling_duration": profiler.profiling_parameters["CPUProfilingDuration"],
                "file_rotation_interval": profiler.profiling_parameters["SMPFileRotationSecs"],
            },
        }
    )


def _output_paths(config: Any) -> dict[str, Any]:
    """The output paths in the configuration of a hook or TensorBoard."""
    return _named(config, "s3_output_path", "container_local_output_path") or {}


def _named(obj: Any, *names: str) -> dict[str, Any] | None:
    """The attributes of ``obj`` with these names that are not None; None if ``obj`` is None."""
    return None if obj is None else given({name: get(obj, name) for name in names})


def get(obj: Any, path: str) -> Any:
    """The attribute at a dotted path; None if it does not exist, or is version 3's ``Unassigned``."""
    for name in path.split("."):
        obj = getattr(obj, name, None)
        if type(obj).__name__ == "Unassigned":
            return None
    return obj


def plain(value: Any, where: str) -> Any:
    """``value`` as dicts, lists and scalars. Raises InvalidJob if it contains anything else."""
    if value is None or (isinstance(value, (str, int, float, bool)) and type(value).__module__ == "builtins"):
        return value
    if is_variable(value):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item, where) for item in value]
    if hasattr(value, "instance_group_name"):
        return instance_group(value)
    raise InvalidJob(
        f"{where}: the SageMaker SDK's {type(value).__name__} cannot be converted to a plain value",
        hint="Pass a plain value.",
    )


def instance_group(group: Any) -> dict[str, Any]:
    return {name: get(group, name) for name in ("instance_group_name", "instance_type", "instance_count")}


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` as plain data, without those that are None or empty; ``False`` is kept."""
    read = {name: plain(value, name) for name, value in arguments.items() if value is not None}
    return {name: value for name, value in read.items() if value not in ({}, [], "")}
