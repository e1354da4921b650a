"""What SageMaker Debugger, its profiler and TensorBoard are told, with the names of the SageMaker SDK."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class CollectionConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Tensors that Debugger saves, by the name of their collection."""

    name: str
    parameters: dict[str, str] | None = None


class DebuggerHookConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which tensors Debugger saves, and where: ``s3_output_path`` is the job's output path unless given."""

    s3_output_path: str | None = None
    container_local_output_path: str | None = None
    hook_parameters: dict[str, str] | None = None
    collection_configs: list[CollectionConfig] = []


class Profiler(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """SageMaker Profiler: for how many seconds it looks at the CPUs, and how often it begins a new file."""

    cpu_profiling_duration: int | str = "3600"
    file_rotation_interval: int | str = "600"


class ProfilerConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the profiler measures, how often (in milliseconds), and where it goes.

    ``framework_profile_params`` are the ``ProfilingParameters`` of the API; ``profile_params`` asks for SageMaker
    Profiler, which evaluates what it sees in a job of its own.
    """

    s3_output_path: str | None = None
    system_monitor_interval_millis: Annotated[int, Meta(ge=100)] | None = None
    framework_profile_params: dict[str, str] | None = None
    profile_params: Profiler | None = None
    disable_profiler: bool = False


class TensorBoardOutputConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where TensorBoard's files go; in the container they are below ``container_local_output_path``."""

    s3_output_path: str
    container_local_output_path: str | None = None
