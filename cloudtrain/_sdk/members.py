"""Arguments and members of the SageMaker SDK's estimators other than ``fit``."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cloudtrain._sdk.left_out import LeftOut
from cloudtrain.config import read_config
from cloudtrain.contract.text import print_lines
from cloudtrain.errors import CloudtrainError, InvalidJob
from cloudtrain.spec import DEFAULT_MAX_RUN, FIELDS, REDACTED, TrainingJob, is_secret
from cloudtrain.spec.conversion import check_values
from cloudtrain.spec.variables import variables

if TYPE_CHECKING:
    from cloudtrain.job import Job
    from cloudtrain.session import Session
    from cloudtrain.training_analytics import TrainingJobAnalytics


_NAMES = {
    "CONTAINER_CODE_CHANNEL_SOURCEDIR_PATH": "/opt/ml/input/data/code/sourcedir.tar.gz",
    "INSTANCE_TYPE": "sagemaker_instance_type",
    "INSTANCE_TYPE_ENV_NAME": "sagemaker_instance_type",
    "JOB_CLASS_NAME": "training-job",
    "LAUNCH_MPI_ENV_NAME": "sagemaker_mpi_enabled",
    "LAUNCH_MWMS_ENV_NAME": "sagemaker_multi_worker_mirrored_strategy_enabled",
    "LAUNCH_PS_ENV_NAME": "sagemaker_parameter_server_enabled",
    "LAUNCH_PT_XLA_ENV_NAME": "sagemaker_pytorch_xla_multi_worker_enabled",
    "LAUNCH_PYTORCH_DDP_ENV_NAME": "sagemaker_pytorch_ddp_enabled",
    "LAUNCH_SM_DDP_ENV_NAME": "sagemaker_distributed_dataparallel_enabled",
    "LAUNCH_TORCH_DISTRIBUTED_ENV_NAME": "sagemaker_torch_distributed_enabled",
    "MPI_CUSTOM_MPI_OPTIONS": "sagemaker_mpi_custom_mpi_options",
    "MPI_NUM_PROCESSES_PER_HOST": "sagemaker_mpi_num_of_processes_per_host",
    "SM_DDP_CUSTOM_MPI_OPTIONS": "sagemaker_distributed_dataparallel_custom_mpi_options",
    "UNSUPPORTED_DLC_IMAGE_FOR_SM_PARALLELISM": ("2.0.1-gpu-py310-cu121",),
    "code_channel_name": "code",
}
"""Constants of the SDK's estimators: names of hyperparameters and the like."""

_UNSET = (
    "code_uri",
    "collection_configs",
    "debugger_rule_configs",
    "debugger_rules",
    "deploy_instance_type",
    "profiler_rule_configs",
    "profiler_rules",
    "training_recipe",
)
"""Attributes that are None without the features that cloudtrain refuses as arguments."""

_FLAGS = ("is_llmft_recipe", "is_nova_job", "is_nova_or_eval_recipe")
"""Attributes that are true for AWS's own recipes, which cloudtrain does not run."""

_LISTS = ("arguments", "dependencies")
"""Arguments that are empty lists by default, to which a script may append."""

_METHODS = ("enable_network_isolation", "enable_remote_debug", "hyperparameters")
"""Arguments whose names are those of methods of the SDK's estimators."""

ATTRIBUTES = frozenset(FIELDS) - {*_METHODS, "source", "cost_terms", "job_name", "inputs"}
"""The arguments that are also attributes."""


def _defaults() -> dict[str, Any]:
    """The value of each argument if it is not given. As in the SDK, most empty ones are None."""
    empty = TrainingJob()
    values = {name: msgspec.to_builtins(getattr(empty, name)) for name in FIELDS}
    values["max_run"] = DEFAULT_MAX_RUN
    none = {name: None for name, value in values.items() if value in ([], {}, 0) and value is not False}
    return {**values, **none, "distribution": {}}


_DEFAULTS = _defaults()


class Hyperparameters(dict[str, Any]):
    """An estimator's hyperparameters: a dict, which ``estimator.hyperparameters()`` copies, as in the SDK."""

    def __call__(self) -> dict[str, Any]:
        return dict(self)


class UploadedCode(NamedTuple):
    """The place of the latest job's source: the URI of its archive, and the script in it."""

    s3_prefix: str
    script_name: str


class SdkMembers(LeftOut):
    """The attributes of an `Estimator`.

    Each argument is an attribute, which can be read and set. Its value is that of the argument, of the config file,
    or the default of the job. `fields` has those that were given or set.
    """

    fields: dict[str, Any]
    git_config: Mapping[str, Any] | None
    jobs: list[Job]
    latest_training_job: Job | None
    uploaded_code: UploadedCode | None
    _output_path: str | None
    _platform: Any
    _session: Any

    # the most common attributes; __getattr__ finds the others by name
    arguments: list[str]
    base_job_name: str | None
    checkpoint_s3_uri: str | None
    code_location: str | None
    dependencies: list[str]
    entry_point: str | None
    environment: dict[str, str] | None
    image_uri: str | None
    instance_count: int
    instance_type: str | None
    max_run: int
    max_wait: int | None
    metric_definitions: list[dict[str, str]] | None
    output_path: str | None
    role: str | None
    source_dir: str | None
    tags: list[dict[str, str]] | None
    use_spot_instances: bool
    volume_size: int

    def __getattr__(self, name: str) -> Any:
        if name in ATTRIBUTES:
            value = self._argument(name)
            return self._output_path if name == "output_path" and value is None else value
        if name in _NAMES:
            return _NAMES[name]
        if name in _UNSET:
            return None
        if name in _FLAGS:
            return False
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "platform":
            is_object = value is not None and not isinstance(value, str)
            self._platform = value if is_object else None
            value = value.name if is_object else value
        if name not in ATTRIBUTES:
            object.__setattr__(self, name, value)
        elif value is None:
            self.fields.pop(name, None)
        else:
            given = {name: to_builtins(value)}
            check_values(given)
            self.fields.update(given)

    def __repr__(self) -> str:
        """The call that makes this estimator, with ``***`` for secrets."""
        shown = ", ".join(f"{name}={_without_secrets(value)!r}" for name, value in self.fields.items())
        return f"{type(self).__name__}({shown})"

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *ATTRIBUTES, *_NAMES, *_UNSET, *_FLAGS})

    def _argument(self, name: str) -> Any:
        """The value that a job would have, as far as it is known before the job starts."""
        value = self.fields.get(name)
        if value is None:
            value = read_config().get(name)
        if value is None:
            return self.fields.setdefault(name, []) if name in _LISTS else _DEFAULTS[name]
        if name == "tags" and isinstance(value, Mapping):
            return [{"Key": key, "Value": str(text)} for key, text in value.items()]
        return value

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters set so far: a dict, or a copy of it as ``hyperparameters()``."""
        found = self.fields.get("hyperparameters", {})
        if not isinstance(found, Hyperparameters):
            found = self.fields["hyperparameters"] = Hyperparameters(found)
        return found

    @hyperparameters.setter
    def hyperparameters(self, values: Mapping[str, Any]) -> None:
        self.fields["hyperparameters"] = Hyperparameters(values)

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add or replace hyperparameters."""
        self.fields["hyperparameters"] = Hyperparameters({**self.hyperparameters, **hyperparameters})

    @property
    def sagemaker_session(self) -> Any:
        """The AWS session that was given, or a new `cloudtrain.Session`."""
        if self._session is None:
            from cloudtrain.session import Session

            self._session = Session()
        return self._session

    @sagemaker_session.setter
    def sagemaker_session(self, session: Session | None) -> None:
        self._session = session

    @property
    def _current_job_name(self) -> str | None:
        """The name of the latest job, by the SDK's private name: many notebooks use it."""
        return self.latest_training_job.name if self.latest_training_job else None

    def logs(self) -> None:
        """Print the output of the latest job until it ends. Raises TrainingFailed if it fails."""
        job = self._latest()
        print_lines(job.follow())
        job.wait()

    @property
    def model_data(self) -> str | None:
        """The URI of the latest job's model; None if there is none (yet).

        Raises:
            CloudtrainError: no job has been started yet.
        """
        return self._latest().model_data

    @property
    def training_job_analytics(self) -> TrainingJobAnalytics:
        """The metrics of the latest job over time. Raises CloudtrainError if no job has been started yet."""
        from cloudtrain.training_analytics import TrainingJobAnalytics

        return TrainingJobAnalytics.of(self._latest())

    def enable_network_isolation(self) -> bool:
        """Whether the job has no network: the value of the argument of this name."""
        return bool(self._argument("enable_network_isolation"))

    def get_remote_debug_config(self) -> dict[str, bool] | None:
        """The request's field, or None without the argument ``enable_remote_debug``."""
        value = self._argument("enable_remote_debug")
        return None if value is None else {"EnableRemoteDebug": value}

    def get_session_chaining_config(self) -> dict[str, bool] | None:
        """The request's field, or None without the argument ``enable_session_tag_chaining``."""
        value = self._argument("enable_session_tag_chaining")
        return None if value is None else {"EnableSessionTagChaining": value}

    def get_vpc_config(self, vpc_config_override: Any = "VPC_CONFIG_DEFAULT") -> dict[str, list[str]] | None:
        """The subnets and security groups as in requests, or None; or ``vpc_config_override``."""
        if vpc_config_override != "VPC_CONFIG_DEFAULT":
            return vpc_config_override  # type: ignore[no-any-return]
        subnets, groups = self._argument("subnets"), self._argument("security_group_ids")
        return {"Subnets": subnets, "SecurityGroupIds": groups} if subnets and groups else None

    def training_image_uri(self, region: str | None = None) -> str:
        """The image of the job, as on SageMaker: ``image_uri``, or AWS's image for the framework.

        Raises:
            InvalidJob: the estimator has neither, or AWS has no such image.
        """
        from cloudtrain.aws.images import training_image

        names = {*TrainingJob.__struct_fields__} - {"platform", "source", "cost_terms"}
        fields = {name: self._argument(name) for name in names if name != "arguments"}
        job = TrainingJob.from_dict({name: value for name, value in fields.items() if value is not None})
        return training_image(job, region or self.sagemaker_session.boto_region_name)

    def latest_job_debugger_artifacts_path(self) -> str | None:
        """The URI of the latest job's debugger output; None without ``debugger_hook_config``."""
        return self._artifacts("debugger_hook_config", "debug-output")

    def latest_job_profiler_artifacts_path(self) -> str | None:
        """The URI of the latest job's profiler output; None without ``profiler_config``."""
        return self._artifacts("profiler_config", "profiler-output")

    def latest_job_tensorboard_artifacts_path(self) -> str | None:
        """The URI of the latest job's files for TensorBoard; None without ``tensorboard_output_config``."""
        return self._artifacts("tensorboard_output_config", "tensorboard-output")

    def _artifacts(self, config: str, folder: str) -> str | None:
        job, found = self._latest(), self._argument(config)
        path = found.get("s3_output_path") if isinstance(found, Mapping) else None
        return f"{path.rstrip('/')}/{job.name}/{folder}" if path else None

    def _latest(self) -> Job:
        if self.latest_training_job is None:
            raise CloudtrainError("the Estimator has not started a job yet", hint="Call fit() first.")
        return self.latest_training_job


def _without_secrets(value: Any, name: str = "") -> Any:
    """``value`` with ``***`` for the strings in it that look like secrets, or whose names do."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, name) for item in value]
    return REDACTED if isinstance(value, str) and is_secret(name, value) else value


def to_builtins(value: Any) -> Any:
    """``value`` with structs, mappings, sequences and paths converted to dicts, lists and strings, for validation."""
    if isinstance(value, msgspec.Struct):
        held = {name: getattr(value, name) for name in value.__struct_fields__}
        if next(variables(held), None) is not None:  # msgspec cannot convert variables
            return {name: to_builtins(item) for name, item in held.items() if item is not None}
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: to_builtins(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_builtins(item) for item in value]
    return str(value) if isinstance(value, Path) else value


POSITIONS = (
    "image_uri",
    "role",
    "instance_count",
    "instance_type",
    "keep_alive_period_in_seconds",
    "volume_size",
    "volume_kms_key",
    "max_run",
    "input_mode",
    "output_path",
    "output_kms_key",
    "base_job_name",
    "sagemaker_session",
    "hyperparameters",
    "tags",
    "subnets",
    "security_group_ids",
    "model_uri",
    "model_channel_name",
    "metric_definitions",
    "encrypt_inter_container_traffic",
    "use_spot_instances",
    "max_wait",
    "checkpoint_s3_uri",
    "checkpoint_local_path",
    "enable_network_isolation",
)
"""The order of the positional arguments of the SDK's ``Estimator``; the rarely used last ones are left out."""

_RENAMED = {
    "train_instance_count": "instance_count",
    "train_instance_type": "instance_type",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
    "train_use_spot_instances": "use_spot_instances",
    "train_volume_kms_key": "volume_kms_key",
    "train_volume_size": "volume_size",
    "distributions": "distribution",
    "image_name": "image_uri",
}
"""Names from version 1 that version 2 still accepts."""

UNSUPPORTED = {
    "env": "Write environment={...}.",
    "image_uri_region": "Write image_uri=image_uris.retrieve(framework, region, version).",
    "requirements_file": "Put a requirements.txt into source_dir: it is installed before the script starts.",
    "training_recipe": "Pass the recipe's script as entry_point, and its values as hyperparameters.",
    "recipe_overrides": "Pass the recipe's script as entry_point, and its values as hyperparameters.",
}
"""Arguments that cloudtrain does not support, and what to do instead."""

_WITHOUT_EFFECT = (
    "checkpoint_path",
    "enable_cloudwatch_metrics",
    "evaluation_steps",
    "script_mode",
    "training_steps",
)
"""Names from version 1 that version 2 ignores: each gives a warning."""


def by_name(
    kind: str, names: Sequence[str], positional: Sequence[Any], named: Container[str]
) -> dict[str, Any]:
    """The positional arguments of a class called ``kind`` by their names. Raises InvalidJob if one is given twice."""
    if len(positional) > len(names):
        raise InvalidJob(
            f"{kind} takes {len(names)} positional arguments, not {len(positional)}",
            hint="Pass the others by name.",
        )
    for name in names[: len(positional)]:
        if name in named:
            raise InvalidJob(
                f"{kind} got {name!r} twice: by position and by name",
                hint=f"The positional arguments are {', '.join(names[:4])}, and so on. Pass them by name.",
            )
    return {name: value for name, value in zip(names, positional, strict=False) if value is not None}


def rename_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` with current names. Raises InvalidJob if an argument is given with both names."""
    renamed = {}
    for name, value in arguments.items():
        current = _RENAMED.get(name, name)
        if current != name:
            if current in arguments:
                raise InvalidJob(f"{name} and {current} are the same argument", hint=f"Pass only {current}.")
            warnings.warn(f"{name} was renamed to {current} in version 2 of the SageMaker SDK", stacklevel=3)
        renamed[current] = value
    return renamed


def drop_empty(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` without unsupported ones that are empty, and without those that have no effect.

    Raises InvalidJob if an unsupported one is not empty.
    """
    if arguments.get("script_mode") is False:
        raise InvalidJob(
            "script_mode: version 2 of the SageMaker SDK has only script mode",
            hint="Let the script train when it is run: if __name__ == '__main__'. Leave script_mode out.",
        )
    if without := [name for name in _WITHOUT_EFFECT if arguments.get(name) is not None]:
        warnings.warn(
            f"{', '.join(without)}: without effect since version 2 of the SageMaker SDK; what the script needs is"
            " one of its hyperparameters",
            stacklevel=3,
        )
    for name, hint in UNSUPPORTED.items():
        if arguments.get(name):
            raise InvalidJob(f"{name}: not supported by cloudtrain", hint=hint)
    return {name: value for name, value in arguments.items() if name not in {*UNSUPPORTED, *_WITHOUT_EFFECT}}
