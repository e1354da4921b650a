"""Renders a job with pipeline variables: valid placeholders replace them until the request exists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.platforms.sagemaker.request_fields import SET_BY
from cloudtrain.spec.variables import is_variable

_MARK = "pipeline-variable-{}-"
_URI = f"s3://{_MARK}"

TEXTS = {
    **dict.fromkeys(("image_uri", "model_channel_name", "volume_kms_key", "output_kms_key"), _MARK),
    **dict.fromkeys(("subnets[]", "security_group_ids[]", "container_arguments[]", "tags[].Value"), _MARK),
    **dict.fromkeys(("container_entry_point[]", "metric_definitions[].Name"), _MARK),
    **dict.fromkeys(("hyperparameters.*", "environment.*", "tags.*"), _MARK),
    **dict.fromkeys(("output_path", "checkpoint_s3_uri", "model_uri", "source_dir", "model_dir"), _URI),
    **dict.fromkeys(("inputs.*", "inputs.*.s3_data"), _URI),
    **dict.fromkeys(("inputs.*.content_type", "inputs.*.attribute_names[]"), _MARK),
    "inputs.*.directory_path": f"/{_MARK}",
    "checkpoint_local_path": f"/{_MARK}",
    "entry_point": f"{_MARK}.py",
    **dict.fromkeys(("mlflow_config.mlflow_experiment_name", "mlflow_config.mlflow_run_name"), _MARK),
    "mlflow_config.mlflow_resource_arn": (
        f"arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/{_MARK}"
    ),
    "model_package_config.model_package_group_arn": (
        f"arn:aws:sagemaker:us-east-1:123456789012:model-package-group/{_MARK}"
    ),
    "role": f"arn:aws:iam::123456789012:role/{_MARK}",
    "training_plan": f"arn:aws:sagemaker:us-east-1:123456789012:training-plan/{_MARK}",
}
"""Fields whose placeholder is a unique text, found wherever the request has it. ``*`` is any name, ``[]`` any index."""

FIXED = {
    "instance_count": 2,  # a job of several hosts has the job secret; one host does not need it
    "instance_groups[].instance_count": 2,
    "volume_size": 30,
    "keep_alive_period_in_seconds": 60,
    "max_run": 1,
    "max_wait": 2**22,
    "max_pending_time_in_seconds": 7200,
    "max_retry_attempts": 1,
    "input_mode": "File",
    "use_spot_instances": True,
    "encrypt_inter_container_traffic": True,
    "enable_network_isolation": True,
    "enable_sagemaker_metrics": True,
    "enable_infra_check": True,
    "enable_remote_debug": True,
    "enable_session_tag_chaining": True,
    "container_log_level": 20,
    "metric_definitions[].Regex": "(x)",
    "training_repository_access_mode": "Vpc",
    "inputs.*.distribution": "FullyReplicated",
    "inputs.*.s3_data_type": "S3Prefix",
    "inputs.*.compression": "None",
    "inputs.*.record_wrapping": "None",
    "inputs.*.input_mode": "File",
    "inputs.*.shuffle_config.seed": 1,
    "inputs.*.file_system_id": "fs-12345678",
    "inputs.*.file_system_type": "EFS",
    "inputs.*.file_system_access_mode": "ro",
    "instance_preferences[].instance_count": 1,
    "distribution.mpi.processes_per_host": 2,
    "distribution.torch_distributed.processes_per_host": 2,
    "distribution.processes.processes_per_host": 2,
    "instance_type": "ml.m5.xlarge",
    "instance_groups[].instance_type": "ml.m5.xlarge",
}
"""Fields whose placeholder is an ordinary value. The variable goes to the one place where the request has the field."""

_NAMED = ("hyperparameters", "environment", "inputs", "tags")
"""Fields whose keys are names that the user chooses."""

_COUNT = "HyperParameters.sagemaker_processes_per_host"
_ELSEWHERE = {
    "container_log_level": "HyperParameters.sagemaker_container_log_level",
    "distribution.mpi.processes_per_host": "HyperParameters.sagemaker_mpi_num_of_processes_per_host",
    "distribution.torch_distributed.processes_per_host": _COUNT,
    "distribution.processes.processes_per_host": _COUNT,
}
_PLACES = {field: place for place, field in SET_BY.items()} | _ELSEWHERE


@dataclass(frozen=True)
class _Place:
    """The place of a value in a job. ``kind`` has ``*`` for the user's names, and ``[]`` for indexes."""

    path: str
    kind: str
    name: str = ""
    index: int = 0

    def named(self, name: str) -> _Place:
        is_users = self.kind in _NAMED
        kind = f"{self.kind}.{'*' if is_users else name}"
        return _Place(f"{self.path}.{name}", kind, name if is_users else self.name, self.index)

    def at(self, index: int) -> _Place:
        return _Place(f"{self.path}[{index}]", f"{self.kind}[]", self.name, index)


class Placeholders:
    """The variables of one job, and the placeholder for each."""

    def __init__(self) -> None:
        self._texts: dict[str, Any] = {}
        self._fixed: list[tuple[_Place, Any]] = []

    def replace(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """``fields`` with a placeholder for each variable.

        Raises:
            InvalidJob: cloudtrain needs the value of a field before the pipeline runs.
        """
        return {name: self._replaced(value, _Place(name, name), fields) for name, value in fields.items()}

    def restore(self, body: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
        """``body``, a CreateTrainingJob request, with the variables in their places.

        Args:
            secrets: the secrets of the request. A pipeline variable among them is not secret, because only its name is
                stored.
        """
        restored: dict[str, Any] = self._restored(body)
        for name, value in secrets.items():
            if value in self._texts:
                restored.setdefault("Environment", {})[name] = self._texts[value]
        for place, variable in self._fixed:
            _put(restored, place, variable)
        return restored

    def is_placeholder(self, text: Any) -> bool:
        return text in self._texts

    def _replaced(self, value: Any, place: _Place, fields: Mapping[str, Any]) -> Any:
        if isinstance(value, Mapping):
            return {key: self._replaced(item, place.named(key), fields) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._replaced(item, place.at(number), fields) for number, item in enumerate(value)]
        return self._placeholder(place, value, fields) if is_variable(value) else value

    def _placeholder(self, place: _Place, variable: Any, fields: Mapping[str, Any]) -> Any:
        path, kind = place.path, place.kind
        text = TEXTS.get(kind)
        if text is not None:
            _check_text(path, fields)
            placeholder = text.format(len(self._texts))
            self._texts[placeholder] = variable
            return placeholder
        if kind in FIXED:
            self._fixed.append((place, variable))
            is_type = kind.endswith("instance_type")
            return _instance_type(path, variable, fields) if is_type else FIXED[kind]
        raise InvalidJob(
            f"{path}: {type(variable).__name__} is a pipeline variable, and cloudtrain must know this value before the "
            "pipeline runs",
            hint="Pass a plain value.",
        )

    def _restored(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key: self._restored_texts(item) if key == "HyperParameters" else self._restored(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self._restored(item) for item in value]
        return self._restored_text(value) if isinstance(value, str) else value

    def _restored_texts(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Hyperparameters are text in every request: a variable of another type is converted once it has a value."""
        return {
            name: self._restored_text(text, lambda found: found.to_string()) for name, text in values.items()
        }

    def _restored_text(self, text: str, convert: Callable[[Any], Any] = lambda found: found) -> Any:
        whole = self._texts.get(text) or self._texts.get(text.removeprefix('"').removesuffix('"'))
        if whole is not None:
            return convert(whole)
        known = [re.escape(placeholder) for placeholder in self._texts if placeholder in text]
        if not known:
            return text
        parts = re.split(f"({'|'.join(known)})", text)
        values = [self._texts.get(part, part) for part in parts if part]
        return sdk_module("functions").Join(on="", values=values)


def _check_text(path: str, fields: Mapping[str, Any]) -> None:
    """Raises InvalidJob if, because of another field, cloudtrain needs the text before the pipeline runs."""
    source = fields.get("source_dir")
    is_packed = is_variable(source) or str(source or "").startswith("s3://")
    if path == "entry_point" and not is_packed:
        raise InvalidJob(
            "entry_point: a pipeline variable can name a script only in a source that is packed already",
            hint="Name the script, or set source_dir to an archive in S3.",
        )
    if path == "checkpoint_local_path" and fields.get("runtime") != "toolkit":
        raise InvalidJob(
            "checkpoint_local_path: cloudtrain's runtime must know it before the pipeline runs",
            hint='Pass a plain path, or use runtime="toolkit".',
        )


def _instance_type(path: str, variable: Any, fields: Mapping[str, Any]) -> str:
    """The variable's default, which chooses AWS's image, as in the SageMaker SDK; any type for the user's own image."""
    default = getattr(variable, "default_value", None)
    if isinstance(default, str):
        return default
    if fields.get("image_uri"):
        return str(FIXED["instance_type"])
    raise InvalidJob(
        f"{path}: {type(variable).__name__} has no default_value, and the image depends on the instances",
        hint="Give the parameter a default_value, or set image_uri.",
    )


def _put(body: dict[str, Any], place: _Place, variable: Any) -> None:
    """Put ``variable`` into ``body``, at the position that corresponds to ``place``."""
    field = place.kind.replace("inputs.*", "inputs.{channel}").replace("[]", "[{0}]")
    *parents, last = _PLACES[field].split(".")
    found: Any = body
    for name in parents:
        found = found[name]
        if name == "InputDataConfig":
            found = next(entry for entry in found if entry["ChannelName"] == place.name)
        elif isinstance(found, list):
            found = found[place.index]
    found[last] = variable.to_string() if "HyperParameters" in parents else variable


_SDK_MODULES = {
    "steps": ("sagemaker.mlops.workflow.steps", "sagemaker.workflow.steps"),
    "properties": ("sagemaker.core.workflow.properties", "sagemaker.workflow.properties"),
    "functions": ("sagemaker.core.workflow.functions", "sagemaker.workflow.functions"),
}
"""The modules of version 3, and of version 2."""


@cache
def sdk_module(name: str) -> Any:
    """The module called ``name`` of the SDK. Raises CloudtrainError if none is installed."""
    for place in _SDK_MODULES[name]:
        try:
            return import_module(place)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("sagemaker"):
                raise
    raise CloudtrainError(
        "a step of a pipeline needs the SageMaker SDK, whose Pipeline it goes into",
        hint="Install it: pip install 'sagemaker<3', or pip install sagemaker for version 3.",
    )
