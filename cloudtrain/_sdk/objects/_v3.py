"""Version 3: ``ModelTrainer``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cloudtrain._sdk.objects._v2 import get, given, instance_group
from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.ignore import ALWAYS_OUT, IgnoreRules
from cloudtrain.spec.names import to_uri

SAME = {
    "role": "role",
    "base_job_name": "base_job_name",
    "image_uri": "training_image",
    "hyperparameters": "hyperparameters",
    "environment": "environment",
    "input_mode": "training_input_mode",
    "instance_type": "compute.instance_type",
    "instance_count": "compute.instance_count",
    "volume_size": "compute.volume_size_in_gb",
    "volume_kms_key": "compute.volume_kms_key_id",
    "keep_alive_period_in_seconds": "compute.keep_alive_period_in_seconds",
    "training_plan": "compute.training_plan_arn",
    "use_spot_instances": "compute.enable_managed_spot_training",
    "subnets": "networking.subnets",
    "security_group_ids": "networking.security_group_ids",
    "enable_network_isolation": "networking.enable_network_isolation",
    "encrypt_inter_container_traffic": "networking.enable_inter_container_traffic_encryption",
    "max_run": "stopping_condition.max_runtime_in_seconds",
    "max_wait": "stopping_condition.max_wait_time_in_seconds",
    "max_pending_time_in_seconds": "stopping_condition.max_pending_time_in_seconds",
    "output_path": "output_data_config.s3_output_path",
    "output_kms_key": "output_data_config.kms_key_id",
    "checkpoint_s3_uri": "checkpoint_config.s3_uri",
    "checkpoint_local_path": "checkpoint_config.local_path",
    "max_retry_attempts": "_retry_strategy.maximum_retry_attempts",
    "enable_infra_check": "_infra_check_config.enable_infra_check",
    "enable_remote_debug": "_remote_debug_config.enable_remote_debug",
    "enable_session_tag_chaining": "_session_chaining_config.enable_session_tag_chaining",
    "entry_point": "source_code.entry_script",
    "source_dir": "source_code.source_dir",
    "training_repository_access_mode": "training_image_config.training_repository_access_mode",
    "training_repository_credentials_provider_arn": (
        "training_image_config.training_repository_auth_config.training_repository_credentials_provider_arn"
    ),
}
"""Arguments, and the attribute that each is read from."""

CHANNEL = {
    "content_type": "content_type",
    "compression": "compression_type",
    "record_wrapping": "record_wrapper_type",
    "input_mode": "input_mode",
}
"""Fields of a channel, and the attribute of a ``Channel`` that each is read from."""

S3_SOURCE = {
    "s3_data": "s3_uri",
    "s3_data_type": "s3_data_type",
    "distribution": "s3_data_distribution_type",
    "attribute_names": "attribute_names",
    "instance_groups": "instance_group_names",
}
"""Likewise, for an ``S3DataSource``."""

FILE_SYSTEM = ("file_system_id", "file_system_type", "directory_path", "file_system_access_mode")
"""The attributes of a ``FileSystemDataSource``, which are those of a channel."""

_CONVERTED = {
    "sagemaker_session",
    "training_mode",
    "source_code.requirements",
    "source_code.ignore_patterns",
    "output_data_config.compression_type",
    "tags",
    "tags.key",
    "tags.value",
    "distributed",
    "distributed.process_count_per_node",
    "distributed.mpi_additional_options",
    "_metric_definitions.name",
    "_metric_definitions.regex",
    "_tensorboard_output_config.s3_output_path",
    "_tensorboard_output_config.local_path",
    "model_package_config.model_package_group_arn",
    "model_package_config.source_model_package_arn",
    *(
        f"compute.instance_groups.{name}"
        for name in ("instance_type", "instance_count", "instance_group_name")
    ),
    *(
        f"compute.instance_preferences.{name}"
        for name in ("instance_type", "instance_count", "training_plan_arns")
    ),
    *(
        f"compute.instance_placement_config.{name}"
        for name in (
            "enable_multiple_jobs",
            "placement_specifications.ultra_server_id",
            "placement_specifications.instance_count",
        )
    ),
    *(f"input_data_config.{name}" for name in ("channel_name", "data_source", "shuffle_config.seed")),
    *(f"input_data_config.{name}" for name in CHANNEL.values()),
    *(f"input_data_config.data_source.{name}" for name in (*S3_SOURCE.values(), *FILE_SYSTEM)),
    "input_data_config.data_source.model_access_config.accept_eula",
    "input_data_config.data_source.hub_access_config.hub_content_arn",
}
"""Other attributes that are read."""

REFUSED = {
    "algorithm_name": "Pass its image as training_image.",
    "source_code.command": "Move the command into a shell script, and pass that as entry_script.",
    "source_code.args": "Pass arguments=[...] to from_sagemaker.",
    "distributed.smp": "Pass it to the Estimator: distribution={'smdistributed': {...}}.",
    "input_data_config.data_source.dataset_source": "Use an S3DataSource, a FileSystemDataSource, or a URI.",
    "input_data_config.data_source.dataset_arn": "Use an S3DataSource, a FileSystemDataSource, or a URI.",
    "_jumpstart_config": "Make a ModelTrainer with the model's image and script.",
    "_is_nova_recipe": "Pass the recipe's script as entry_script, and its values as hyperparameters.",
    "_is_llmft_recipe": "Pass the recipe's script as entry_script, and its values as hyperparameters.",
}
"""Attributes that cloudtrain does not support, and what to do instead."""

LEFT_OUT = {
    "config_mgr": "the SDK's defaults: cloudtrain has its own config file",
    "local_container_root": "where the SDK's local mode keeps its files",
    "input_s3_key_prefix": "where the SDK uploads local inputs",
    "compute.selected_instance_type": "the result of a job",
    "compute.selected_instance_count": "the result of a job",
    "_latest_training_job": "the result of a job",
    "_temp_code_dir": "the SDK's own files",
    "_temp_recipe_train_dir": "the SDK's own files: source_dir is there",
}
"""Attributes without a meaning for a job of cloudtrain, and why."""

CARRIED = {*SAME.values(), *_CONVERTED}

_WRAPPERS = ("s3_data_source", "file_system_data_source")


def check_attributes(obj: Any) -> None:
    """Raises InvalidJob for an attribute of a ``ModelTrainer`` that is set but would be lost, also for a newer SDK."""
    for path in _set_attributes(obj, ""):
        refused = next((name for name in REFUSED if _is_within(path, name)), None)
        if refused:
            raise InvalidJob(f"from_sagemaker: {refused} is not supported", hint=REFUSED[refused])
        if path not in CARRIED and not _ends_here(path):
            raise InvalidJob(
                f"from_sagemaker: {path} is not supported: cloudtrain has no equivalent",
                hint="Leave it out, and pass what corresponds to it to from_sagemaker.",
            )


def _set_attributes(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _set_attributes(item, path)
    elif (
        value is None or value is False or value == "" or value == {} or type(value).__name__ == "Unassigned"
    ):
        return
    elif not hasattr(value, "__dict__") or isinstance(value, (type, Enum)) or _ends_here(path):
        yield path
    else:
        attributes = {**vars(value), **(getattr(value, "__pydantic_private__", None) or {})}
        for name, item in attributes.items():
            yield from _set_attributes(item, path if name in _WRAPPERS else f"{path}.{name}".lstrip("."))


def _ends_here(path: str) -> bool:
    """Whether an object at ``path`` is left out, or read as a whole."""
    return path in ("sagemaker_session", "training_mode") or any(_is_within(path, name) for name in LEFT_OUT)


def _is_within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.")


def read_model_trainer(obj: Any, instance_type: str | None = None) -> dict[str, Any]:
    """The arguments for ``obj``. Raises InvalidJob if it uses a feature that cloudtrain has no argument for.

    Its local container mode becomes the container platform, with the same image and GPUs.
    """
    check_attributes(obj)
    _check_source(obj)
    groups = get(obj, "compute.instance_groups") or []
    arguments = {name: get(obj, path) for name, path in SAME.items()}
    if groups:
        arguments |= {"instance_type": None, "instance_count": None}
    session = get(obj, "sagemaker_session")
    is_local = str(getattr(get(obj, "training_mode"), "value", "")) == "LOCAL_CONTAINER"
    read = given(
        {
            **arguments,
            "platform": "container" if is_local and instance_type is None else None,
            "instance_groups": [instance_group(group) for group in groups],
            "instance_preferences": [
                _fields(one, "instance_type", "instance_count", "training_plan_arns")
                for one in (() if instance_type else get(obj, "compute.instance_preferences") or ())
            ],
            "instance_placement_config": _placement(get(obj, "compute.instance_placement_config")),
            "model_package_config": _fields(
                get(obj, "model_package_config"), "model_package_group_arn", "source_model_package_arn"
            ),
            "disable_output_compression": get(obj, "output_data_config.compression_type") == "NONE" or None,
            "distribution": _distribution(get(obj, "distributed")),
            "inputs": dict(_channel(channel) for channel in get(obj, "input_data_config") or []),
            "tags": [
                {"Key": _part(tag, "key"), "Value": _part(tag, "value")} for tag in get(obj, "tags") or []
            ],
            "metric_definitions": [
                {"Name": one.name, "Regex": one.regex} for one in get(obj, "_metric_definitions") or []
            ],
            "tensorboard_output_config": {
                name: value
                for name, value in (
                    ("s3_output_path", get(obj, "_tensorboard_output_config.s3_output_path")),
                    ("container_local_output_path", get(obj, "_tensorboard_output_config.local_path")),
                )
                if value
            },
        }
    )
    return {**read, **({"sagemaker_session": session} if session is not None else {})}


def _check_source(obj: Any) -> None:
    """Raises InvalidJob if the source would contain other files than with the SDK, or install other packages."""
    requirements = get(obj, "source_code.requirements")
    if requirements not in (None, "requirements.txt", "./requirements.txt"):
        raise InvalidJob(
            f"from_sagemaker: source_code.requirements: {requirements} is not supported",
            hint="Move it to requirements.txt at the top of source_dir: cloudtrain installs that file.",
        )
    folder = get(obj, "source_code.source_dir")
    patterns = get(obj, "source_code.ignore_patterns") or ()
    if isinstance(folder, (str, Path)) and Path(folder).is_dir():
        ignored = unknown_patterns(Path(folder), patterns)
        if ignored:
            raise InvalidJob(
                f"from_sagemaker: source_code.ignore_patterns: cloudtrain would pack what matches {', '.join(ignored)}",
                hint=f"Write the patterns into {Path(folder) / '.cloudtrainignore'}, one in each line.",
            )


def _placement(config: Any) -> dict[str, Any]:
    places = [
        given({"UltraServerId": get(one, "ultra_server_id"), "InstanceCount": get(one, "instance_count")})
        for one in get(config, "placement_specifications") or ()
    ]
    return given(
        {"EnableMultipleJobs": get(config, "enable_multiple_jobs"), "PlacementSpecifications": places}
    )


def _distribution(distributed: Any) -> dict[str, Any] | None:
    if distributed is None:
        return None
    kind = type(distributed).__name__
    processes = get(distributed, "process_count_per_node")
    options = {"processes_per_host": processes} if processes else {}
    if kind == "Torchrun":
        return {"torch_distributed": options}
    if kind == "MPI":
        extra = get(distributed, "mpi_additional_options") or []
        return {"mpi": {**options, **({"custom_mpi_options": shlex.join(extra)} if extra else {})}}
    raise InvalidJob(
        f"from_sagemaker: distributed={kind}(...) is not supported",
        hint="Use Torchrun or MPI, or pass distribution=... to from_sagemaker.",
    )


def _channel(channel: Any) -> tuple[str, Any]:
    """The name and data of a ``Channel`` or an ``InputData``; the source of the latter may be a URI or a path."""
    source = get(channel, "data_source")
    if isinstance(source, str):
        uri = to_uri(source)
        fields: dict[str, Any] = {"s3_data": uri}
    else:
        fields = _source_fields(source, channel.channel_name)
    seed = get(channel, "shuffle_config.seed")
    fields |= {name: get(channel, attribute) for name, attribute in CHANNEL.items()}
    fields["shuffle_config"] = None if seed is None else {"seed": seed}
    return str(channel.channel_name), given(fields)


def _source_fields(source: Any, name: str) -> dict[str, Any]:
    s3 = get(source, "s3_data_source") or (source if hasattr(source, "s3_uri") else None)
    if s3 is not None:
        eula = get(s3, "model_access_config.accept_eula")
        return {
            **{name: get(s3, attribute) for name, attribute in S3_SOURCE.items()},
            "model_access_config": None if eula is None else {"AcceptEula": eula},
            "hub_access_config": given({"HubContentArn": get(s3, "hub_access_config.hub_content_arn")}),
        }
    mounted = get(source, "file_system_data_source") or source
    if not hasattr(mounted, "file_system_id"):
        raise InvalidJob(
            f"from_sagemaker: channel {name!r}: a {type(source).__name__} is not supported as its data_source",
            hint="Use an S3DataSource, a FileSystemDataSource, or a URI.",
        )
    return {field: get(mounted, field) for field in FILE_SYSTEM}


def _fields(obj: Any, *names: str) -> dict[str, Any]:
    """The attributes of ``obj`` that are set."""
    return given({name: get(obj, name) for name in names})


def _part(tag: Any, name: str) -> Any:
    """The key or the value of a tag, which is an object, or a dict with keys of either capitalisation."""
    if isinstance(tag, dict):
        return tag.get(name, tag.get(name.capitalize()))
    return get(tag, name)


def unknown_patterns(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Those of ``patterns`` that match files in ``folder`` which cloudtrain would pack."""
    names = set(_packed_names(str(folder.absolute())))
    return [pattern for pattern in patterns if any(fnmatch(name, pattern) for name in names)]


def _packed_names(root: str) -> Iterator[str]:
    """The names of the files and folders in ``root`` that no ignore file leaves out."""
    rules = {root: IgnoreRules.around(root).within(root)}
    for folder, folders, files in os.walk(root):
        own = rules.pop(folder)
        kept = [
            name
            for name in folders
            if name not in ALWAYS_OUT and not own.leave_out(os.path.join(folder, name), is_folder=True)
        ]
        for name in kept:
            path = os.path.join(folder, name)
            rules[path] = own.within(path)
        folders[:] = kept
        yield from kept
        yield from (
            name
            for name in files
            if name not in ALWAYS_OUT and not own.leave_out(os.path.join(folder, name), is_folder=False)
        )
