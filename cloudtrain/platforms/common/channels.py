"""The channels of a job as files, which is how supervised platforms provide them."""

from __future__ import annotations

from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import Channel, FileSystemInput, TrainingInput, TrainingJob

_STREAM_FIELDS = ("compression", "record_wrapping", "shuffle_config")
"""Fields of a channel that describe a stream: they have an effect in Pipe mode only."""
_SAGEMAKER_FIELDS = ("attribute_names", "target_attribute_name")
"""Fields of a channel that only SageMaker's own data loading supports."""


def check_channels(job: TrainingJob, platform: str) -> None:
    """Raises InvalidJob for a channel that cannot be provided as files."""
    for name, channel in job.inputs.items():
        if isinstance(channel, FileSystemInput):
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform mounts no file systems",
                hint="Set it to the location of the data itself: a file:// or s3:// URI.",
            )
        if channel.s3_data_type != "S3Prefix":
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform supports S3Prefix, not {channel.s3_data_type}"
            )
        is_pipe = (channel.input_mode or job.input_mode) == "Pipe"
        for field in _SAGEMAKER_FIELDS if is_pipe else (*_SAGEMAKER_FIELDS, *_STREAM_FIELDS):
            if getattr(channel, field) not in (None, "None"):
                pipe = ", or use input_mode: Pipe" if field in _STREAM_FIELDS else ""
                raise InvalidJob(
                    f"inputs.{name}.{field}: the {platform} platform gives files as they are",
                    hint=f"Leave it out, and do this in the script{pipe}.",
                )
        if channel.instance_groups:
            raise InvalidJob(
                f"inputs.{name}.instance_groups: the {platform} platform provides every channel on all hosts",
                hint="Leave it out.",
            )


def channel_entries(job: TrainingJob) -> dict[str, dict[str, Any]]:
    """The channels of a job that `check_channels` has passed, by name.

    Each has its ``uri``; the other fields are those of ``inputdataconfig.json``. A model to start from is in files.
    """
    modes = {name: job.input_mode if name in job.inputs else "File" for name in job.channels}
    return {name: _entry(modes[name], _files(channel)) for name, channel in job.channels.items()}


def _entry(default_mode: str, channel: TrainingInput) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "uri": channel.s3_data,
        "TrainingInputMode": channel.input_mode or default_mode,
        "S3DistributionType": channel.distribution or "FullyReplicated",
        "RecordWrapperType": channel.record_wrapping or "None",
    }
    if channel.content_type:
        entry["ContentType"] = channel.content_type
    if channel.compression not in (None, "None"):
        entry["CompressionType"] = channel.compression
    if channel.shuffle_config:
        entry["ShuffleConfig"] = {"Seed": channel.shuffle_config.seed}
    return entry


def _files(channel: Channel) -> TrainingInput:
    assert isinstance(channel, TrainingInput)
    return channel
