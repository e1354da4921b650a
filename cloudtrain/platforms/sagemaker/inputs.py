"""The channels of a CreateTrainingJob request."""

from __future__ import annotations

from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import Channel, FileSystemInput, TrainingInput, TrainingJob

MODEL_CONTENT_TYPE = "application/x-sagemaker-model"

FULLY_REPLICATED = "FullyReplicated"


def input_data_config(job: TrainingJob) -> list[dict[str, Any]]:
    """The inputs, then the model to start from. Raises InvalidJob for data that is not in S3."""
    channels = [channel_config(name, channel) for name, channel in job.inputs.items()]
    if job.model_uri:
        model = TrainingInput(job.model_uri, content_type=MODEL_CONTENT_TYPE, input_mode="File")
        channels.append(channel_config(job.model_channel_name, model))
    return channels


def channel_config(name: str, channel: Channel) -> dict[str, Any]:
    """One entry of ``InputDataConfig``."""
    config: dict[str, Any]
    if isinstance(channel, FileSystemInput):
        config = {
            "DataSource": {"FileSystemDataSource": _file_system(channel)},
            "ContentType": channel.content_type,
        }
    else:
        check_s3(f"inputs.{name}", channel.s3_data)
        config = {
            "DataSource": {"S3DataSource": _s3(channel)},
            "CompressionType": channel.compression,
            "ContentType": channel.content_type,
            "RecordWrapperType": channel.record_wrapping,
            "InputMode": channel.input_mode,
            "TargetAttributeName": channel.target_attribute_name,
            "ShuffleConfig": {"Seed": channel.shuffle_config.seed} if channel.shuffle_config else None,
        }
    return {"ChannelName": name, **given(config)}


def check_s3(field: str, uri: str | None) -> None:
    """Raises InvalidJob if ``uri`` is not in S3."""
    if uri is not None and not uri.startswith("s3://"):
        raise InvalidJob(
            f"{field}: SageMaker reads and writes S3, not {uri}",
            hint="Name a folder in a bucket: s3://bucket/prefix.",
        )


def given(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` without values that are None."""
    return {key: value for key, value in config.items() if value is not None}


def _s3(channel: TrainingInput) -> dict[str, Any]:
    # like the SDK, send no default with a target attribute: SageMaker chooses it
    default = None if channel.target_attribute_name else FULLY_REPLICATED
    return given(
        {
            "S3DataType": channel.s3_data_type,
            "S3Uri": channel.s3_data,
            "S3DataDistributionType": channel.distribution or default,
            "InstanceGroupNames": channel.instance_groups,
            "AttributeNames": channel.attribute_names,
            "HubAccessConfig": channel.hub_access_config,
            "ModelAccessConfig": channel.model_access_config,
        }
    )


def _file_system(channel: FileSystemInput) -> dict[str, Any]:
    return {
        "FileSystemId": channel.file_system_id,
        "FileSystemType": channel.file_system_type,
        "DirectoryPath": channel.directory_path,
        "FileSystemAccessMode": channel.file_system_access_mode,
    }
