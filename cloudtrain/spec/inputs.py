"""Channels and instance groups, with the names of the SageMaker SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct


class ShuffleConfig(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The seed for shuffling a channel's keys before each epoch."""

    seed: int


class TrainingInput(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One input channel: the location of its data, and how hosts share it.

    ``s3_data`` is an ``s3://`` or ``file://`` URI. ``distribution`` is ``FullyReplicated`` (every host gets all
    objects, the default) or ``ShardedByS3Key`` (every host gets a part of the objects).
    """

    s3_data: str
    distribution: Annotated[str, Meta(pattern="^(FullyReplicated|ShardedByS3Key)$")] | None = None
    compression: Annotated[str, Meta(pattern="^(None|Gzip)$")] | None = None
    content_type: str | None = None
    record_wrapping: Annotated[str, Meta(pattern="^(None|RecordIO)$")] | None = None
    s3_data_type: Annotated[str, Meta(pattern="^(S3Prefix|ManifestFile|AugmentedManifestFile)$")] = "S3Prefix"
    instance_groups: list[str] | None = None
    input_mode: Annotated[str, Meta(pattern="^(File|FastFile|Pipe)$")] | None = None
    attribute_names: list[str] | None = None
    target_attribute_name: str | None = None
    shuffle_config: ShuffleConfig | None = None
    hub_access_config: dict[str, str] | None = None
    model_access_config: dict[str, bool] | None = None


class FileSystemInput(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A channel on a file system that every host mounts, read-only (``ro``) by default."""

    file_system_id: str
    file_system_type: Literal["FSxLustre", "EFS"]
    directory_path: str
    file_system_access_mode: Literal["ro", "rw"] = "ro"
    content_type: str | None = None


if TYPE_CHECKING:
    Channel = TrainingInput | FileSystemInput
else:
    Channel = Any  # msgspec does not support unions of structs: `TrainingJob.from_dict` chooses the class


class InstanceGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """A group of identical instances in a heterogeneous cluster."""

    instance_group_name: str
    instance_type: str
    instance_count: Annotated[int, Meta(ge=1)]


class InstancePreference(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An instance type that a job accepts, the number of its hosts then, and the training plan with its capacity.

    Without ``instance_count``, that of the job applies. Without ``training_plan_arns``, instances are on demand.
    """

    instance_type: str
    instance_count: Annotated[int, Meta(ge=1)] | None = None
    training_plan_arns: Annotated[list[str], Meta(min_length=1, max_length=1)] | None = None
