"""Version 3: ``ModelTrainer``."""

from __future__ import annotations

import shlex
from typing import Any

from cloudtrain._sdk_objects._values import get, given, instance_group
from cloudtrain.errors import InvalidJob
from cloudtrain.spec._uris import to_uri

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
    "training_repository_access_mode": "training_image_config.training_repository_access_mode",
    "training_repository_credentials_provider_arn": (
        "training_image_config.training_repository_auth_config.training_repository_credentials_provider_arn"
    ),
}
"""Arguments, and the attribute that each is read from."""

REFUSED = {
    "algorithm_name": "Pass its image as training_image.",
    "compute.instance_placement_config": "Pass it to the Estimator: instance_placement_config={...}.",
    "source_code.command": "Move the command into a shell script, and pass that as entry_script.",
    "distributed.smp": "Pass it to the Estimator: distribution={'smdistributed': {...}}.",
}
"""Attributes that cloudtrain does not support, and what to do instead."""


def read_model_trainer(obj: Any, instance_type: str | None = None) -> dict[str, Any]:
    """The arguments for ``obj``. Raises InvalidJob if it uses a feature that cloudtrain has no argument for.

    Its local container mode becomes the container platform, with the same image and GPUs.
    """
    for path, hint in REFUSED.items():
        if get(obj, path):
            raise InvalidJob(f"from_sagemaker: {path} is not supported", hint=hint)
    groups = get(obj, "compute.instance_groups") or []
    arguments = {name: get(obj, path) for name, path in SAME.items()}
    if groups:
        arguments |= {"instance_type": None, "instance_count": None}
    session = get(obj, "sagemaker_session")
    is_local = str(getattr(get(obj, "training_mode"), "value", "")) == "LOCAL_CONTAINER"
    read = given(
        {
            **arguments,
            **_source(obj),
            "platform": "container" if is_local and instance_type is None else None,
            "instance_groups": [instance_group(group) for group in groups],
            "instance_preferences": [
                _fields(one, "instance_type", "instance_count", "training_plan_arns")
                for one in (() if instance_type else get(obj, "compute.instance_preferences") or ())
            ],
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


def _source(obj: Any) -> dict[str, Any]:
    requirements = get(obj, "source_code.requirements")
    if requirements not in (None, "requirements.txt", "./requirements.txt"):
        raise InvalidJob(
            f"from_sagemaker: source_code.requirements: {requirements} is not supported",
            hint="Move it to requirements.txt at the top of source_dir: cloudtrain installs that file.",
        )
    return {
        "entry_point": get(obj, "source_code.entry_script"),
        "source_dir": get(obj, "source_code.source_dir"),
    }


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
    fields |= {
        "content_type": get(channel, "content_type"),
        "compression": get(channel, "compression_type"),
        "record_wrapping": get(channel, "record_wrapper_type"),
        "input_mode": get(channel, "input_mode"),
        "shuffle_config": None if seed is None else {"seed": seed},
    }
    return str(channel.channel_name), given(fields)


def _source_fields(source: Any, name: str) -> dict[str, Any]:
    s3 = get(source, "s3_data_source") or (source if hasattr(source, "s3_uri") else None)
    if s3 is not None:
        return {
            "s3_data": get(s3, "s3_uri"),
            "s3_data_type": get(s3, "s3_data_type"),
            "distribution": get(s3, "s3_data_distribution_type"),
            "attribute_names": get(s3, "attribute_names"),
            "instance_groups": get(s3, "instance_group_names"),
        }
    mounted = get(source, "file_system_data_source") or source
    if not hasattr(mounted, "file_system_id"):
        raise InvalidJob(
            f"from_sagemaker: channel {name!r}: a {type(source).__name__} is not supported as its data_source",
            hint="Use an S3DataSource, a FileSystemDataSource, or a URI.",
        )
    names = ("file_system_id", "file_system_type", "directory_path", "file_system_access_mode")
    return {field: get(mounted, field) for field in names}


def _fields(obj: Any, *names: str) -> dict[str, Any]:
    """The attributes of ``obj`` that are set."""
    return given({name: get(obj, name) for name in names})


def _part(tag: Any, name: str) -> Any:
    """The key or the value of a tag, which is an object, or a dict with keys of either capitalisation."""
    if isinstance(tag, dict):
        return tag.get(name, tag.get(name.capitalize()))
    return get(tag, name)
