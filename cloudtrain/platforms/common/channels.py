"""The channels and instance groups of a job, as a supervisor on this machine can give them."""

from __future__ import annotations

from itertools import islice
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
"""Fields of a channel that only a data loader of the platform can honour."""


def check_channels(job: TrainingJob, platform: str) -> None:
    """Raises InvalidJob for a channel that is more than files."""
    for name, channel in job.inputs.items():
        if isinstance(channel, FileSystemInput):
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform mounts no file systems",
                hint="Give the data's own place: a file:// or s3:// URI.",
            )
        if "Pipe" in (channel.input_mode, job.input_mode):
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform has no Pipe mode", hint="Use File or FastFile."
            )
        if channel.s3_data_type != "S3Prefix":
            raise InvalidJob(
                f"inputs.{name}: the {platform} platform reads S3Prefix, not {channel.s3_data_type}"
            )
        for field in _FIELDS:
            if getattr(channel, field) not in (None, "None"):
                raise InvalidJob(
                    f"inputs.{name}.{field}: the {platform} platform gives files as they are",
                    hint="Leave it out, and let the script do it.",
                )
        if channel.instance_groups:
            raise InvalidJob(
                f"inputs.{name}.instance_groups: the {platform} platform gives a channel to all hosts",
                hint="Leave it out.",
            )


def channel_uris(job: TrainingJob) -> tuple[tuple[str, str], ...]:
    """Pairs of channel and URI, of a job that `check_channels` has passed."""
    return tuple((name, _files(channel).s3_data) for name, channel in job.channels.items())


def channel_configs(job: TrainingJob) -> dict[str, dict[str, Any]]:
    """The content of ``inputdataconfig.json``, as SageMaker writes it."""
    return {name: _config(job, _files(channel)) for name, channel in job.channels.items()}


def _config(job: TrainingJob, channel: TrainingInput) -> dict[str, Any]:
    config = {
        "TrainingInputMode": channel.input_mode or job.input_mode,
        "S3DistributionType": channel.distribution or "FullyReplicated",
        "RecordWrapperType": channel.record_wrapping or "None",
    }
    return {**config, "ContentType": channel.content_type} if channel.content_type else config


def _files(channel: Channel) -> TrainingInput:
    assert isinstance(channel, TrainingInput)
    return channel


def instance_groups(job: TrainingJob, hosts: list[str]) -> list[dict[str, Any]]:
    """The groups as in ``resourceconfig.json``: each has the next hosts."""
    rest = iter(hosts)
    return [
        {
            "instance_group_name": group.instance_group_name,
            "instance_type": group.instance_type,
            "hosts": list(islice(rest, group.instance_count)),
        }
        for group in job.instance_groups
    ]
