"""Channels and instance groups, with the names of the SageMaker SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, structs

S3_FIELDS = {
    "S3DataType": "s3_data_type",
    "S3Uri": "s3_data",
    "S3DataDistributionType": "distribution",
    "InstanceGroupNames": "instance_groups",
    "AttributeNames": "attribute_names",
    "HubAccessConfig": "hub_access_config",
    "ModelAccessConfig": "model_access_config",
}
"""The fields of an ``S3DataSource`` in a CreateTrainingJob request, and the fields of `TrainingInput`."""

FILE_SYSTEM_FIELDS = {
    "FileSystemId": "file_system_id",
    "FileSystemType": "file_system_type",
    "DirectoryPath": "directory_path",
    "FileSystemAccessMode": "file_system_access_mode",
}
"""Likewise, those of a ``FileSystemDataSource`` and of `FileSystemInput`."""

CHANNEL_FIELDS = {
    "CompressionType": "compression",
    "ContentType": "content_type",
    "RecordWrapperType": "record_wrapping",
    "InputMode": "input_mode",
    "TargetAttributeName": "target_attribute_name",
}
"""Likewise, the other fields of a channel."""


def _request_fields(channel: Struct, names: Mapping[str, str]) -> dict[str, Any]:
    found = {field: getattr(channel, name, None) for field, name in names.items()}
    return {field: value for field, value in found.items() if value is not None}


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

    @property
    def config(self) -> dict[str, Any]:
        """The channel in a CreateTrainingJob request, without its name."""
        # like the SDK, send no default with a target attribute: SageMaker chooses it
        is_default = self.distribution is None and not self.target_attribute_name
        channel = structs.replace(self, distribution="FullyReplicated") if is_default else self
        return {
            "DataSource": {"S3DataSource": _request_fields(channel, S3_FIELDS)},
            **_request_fields(channel, CHANNEL_FIELDS),
            **({"ShuffleConfig": {"Seed": self.shuffle_config.seed}} if self.shuffle_config else {}),
        }


class FileSystemInput(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A channel on a file system that every host mounts, read-only (``ro``) by default."""

    file_system_id: str
    file_system_type: Literal["FSxLustre", "EFS"]
    directory_path: str
    file_system_access_mode: Literal["ro", "rw"] = "ro"
    content_type: str | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The channel in a CreateTrainingJob request, without its name."""
        return {
            "DataSource": {"FileSystemDataSource": _request_fields(self, FILE_SYSTEM_FIELDS)},
            **_request_fields(self, CHANNEL_FIELDS),
        }


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
    """An instance type that a job accepts, the number of hosts of this type, and the training plan with its capacity.

    Without ``instance_count``, that of the job applies. Without ``training_plan_arns``, instances are on demand.
    """

    instance_type: str
    instance_count: Annotated[int, Meta(ge=1)] | None = None
    training_plan_arns: Annotated[list[str], Meta(min_length=1, max_length=1)] | None = None
