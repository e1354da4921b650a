"""Version 3: ``ModelTrainer``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cloudtrain._sdk.objects._v3_attributes import CHANNEL, FILE_SYSTEM, S3_SOURCE, SAME, check_attributes
from cloudtrain._sdk.objects._values import get, given, instance_group
from cloudtrain.errors import InvalidJob
from cloudtrain.packaging.ignore import ALWAYS_OUT, IgnoreRules
from cloudtrain.spec.uris import to_uri


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
