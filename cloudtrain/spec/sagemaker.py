"""The fields of a job that only SageMaker has, with the names of the SDK: Debugger, profilers, MLflow, the registry."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class CollectionConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A collection of tensors that Debugger saves."""

    name: str
    parameters: dict[str, str] | None = None


class DebuggerHookConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tensors that Debugger saves, and where. The default ``s3_output_path`` is the job's output path."""

    s3_output_path: str | None = None
    container_local_output_path: str | None = None
    hook_parameters: dict[str, str] | None = None
    collection_configs: list[CollectionConfig] = []


class Profiler(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """SageMaker Profiler: the seconds that it profiles CPUs, and the seconds after which it starts a new file."""

    cpu_profiling_duration: int | str = "3600"
    file_rotation_interval: int | str = "600"


class ProfilerConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The metrics that the profiler collects, the interval in milliseconds, and where they are stored.

    ``framework_profile_params`` are the API's ``ProfilingParameters``. ``profile_params`` enables SageMaker Profiler,
    which analyses its results in a separate job.
    """

    s3_output_path: str | None = None
    system_monitor_interval_millis: Annotated[int, Meta(ge=100)] | None = None
    framework_profile_params: dict[str, str] | None = None
    profile_params: Profiler | None = None
    disable_profiler: bool = False


class TensorBoardOutputConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where TensorBoard's files are stored. Inside the container they are in ``container_local_output_path``."""

    s3_output_path: str
    container_local_output_path: str | None = None


RULE_SOURCE = "source_s3_uri"
"""The parameter of a rule that names its Python file. A file:// URI is uploaded with the job."""


class Rule(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rule that SageMaker evaluates in its own job while the training runs.

    ``image_uri`` defaults to AWS's image for rules, which selects its own instances. The collections of all rules are
    saved. ``actions`` is the action of a fired rule, or a list of them, with their parameters by name. ``profiles`` is
    true for a rule about the profiler's metrics.
    """

    name: str
    image_uri: str | None = None
    instance_type: str | None = None
    volume_size_in_gb: Annotated[int, Meta(ge=1)] | None = None
    container_local_output_path: str | None = None
    s3_output_path: str | None = None
    rule_parameters: dict[str, str] = {}
    collections_to_save: list[CollectionConfig] = []
    actions: list[dict[str, str]] | dict[str, str] | None = None
    profiles: bool = False


class TrainingCompilerConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """SageMaker Training Compiler, in AWS's images that have it; ``debug`` writes what it compiles to the outputs."""

    enabled: bool = True
    debug: bool = False


class MlflowConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The managed MLflow that a job reports to, and the names of its experiment and its run there."""

    mlflow_resource_arn: str
    mlflow_experiment_name: str | None = None
    mlflow_run_name: str | None = None


class ModelPackageConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The group in the model registry that SageMaker registers the trained model in."""

    model_package_group_arn: str
    source_model_package_arn: str | None = None
