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


class ProfilerConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the profiler measures, how often (in milliseconds), and where it goes.

    ``framework_profile_params`` are the ``ProfilingParameters`` of the API.
    """

    s3_output_path: str | None = None
    system_monitor_interval_millis: Annotated[int, Meta(ge=100)] | None = None
    framework_profile_params: dict[str, str] | None = None
    profile_params: dict[str, str] | None = None
    disable_profiler: bool = False


class TensorBoardOutputConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where TensorBoard's files go; in the container they are below ``container_local_output_path``."""

    s3_output_path: str
    container_local_output_path: str | None = None
