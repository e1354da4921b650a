"""The channels of a job as files, which is how supervised platforms provide them."""

from __future__ import annotations

from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec import Channel, FileSystemInput, TrainingInput, TrainingJob

_FIELDS = (
    "attribute_names",
    "compression",
    "record_wrapping",
    "shuffle_config",
    "target_attribute_name",
)
"""Fields of a channel that only SageMaker's own data loading supports."""


def check_channels(job: TrainingJob, platform: str) -> None:
    """Raises InvalidJob for a channel that cannot be provided as files."""
    for name, channel in job.inputs.items():
        if isinstance(channel, FileSystemInput):
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform mounts no file systems",
                hint="Set it to the location of the data itself: a file:// or s3:// URI.",
            )
        if "Pipe" in (channel.input_mode, job.input_mode):
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform has no Pipe mode", hint="Use File or FastFile."
            )
        if channel.s3_data_type != "S3Prefix":
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform supports S3Prefix, not {channel.s3_data_type}"
            )
        for field in _FIELDS:
            if getattr(channel, field) not in (None, "None"):
                raise InvalidJob(
                    f"inputs.{name}.{field}: the {platform} platform gives files as they are",
                    hint="Leave it out, and do this in the script.",
                )
        if channel.instance_groups:
            raise InvalidJob(
                f"inputs.{name}.instance_groups: the {platform} platform provides every channel on all hosts",
                hint="Leave it out.",
            )


def channel_entries(job: TrainingJob) -> dict[str, dict[str, Any]]:
    """The channels of a job that `check_channels` has passed, by name.

    Each has its ``uri``; the other fields are those of ``inputdataconfig.json``.
    """
    return {name: _entry(job, _files(channel)) for name, channel in job.channels.items()}


def _entry(job: TrainingJob, channel: TrainingInput) -> dict[str, Any]:
    entry = {
        "uri": channel.s3_data,
        "TrainingInputMode": channel.input_mode or job.input_mode,
        "S3DistributionType": channel.distribution or "FullyReplicated",
        "RecordWrapperType": channel.record_wrapping or "None",
    }
    return {**entry, "ContentType": channel.content_type} if channel.content_type else entry


def _files(channel: Channel) -> TrainingInput:
    assert isinstance(channel, TrainingInput)
    return channel
