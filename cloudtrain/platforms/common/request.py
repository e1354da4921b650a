"""The part of a request that is the same on all supervised platforms, with the channels of a job as files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from cloudtrain.contract import Settings
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.spec import Channel, FileSystemInput, TrainingInput, TrainingJob, is_secret
from cloudtrain.storage import join_uri


def new_request(platform: str, job: TrainingJob, body: Mapping[str, Any]) -> Request:
    """The request with ``body``. Likely secrets in the job's environment are moved to ``secrets``.

    The values of the job's own ``secrets`` are added on submission, because rendering does not read the environment.
    """
    assert job.job_name, "a job is named before it is rendered"
    secrets = {name: value for name, value in job.environment.items() if is_secret(name, value)}
    return Request(platform, job.job_name, body, secrets)


def base_body(job: TrainingJob, *, master_port: int, max_preemptions: int) -> dict[str, Any]:
    """The fields that every supervised platform needs.

    ``settings`` are the result of `contract.Settings.to_dict` for the job. Settings that depend on the machine of a
    host, such as its name, its folders or the leader's address, are added where the host's process starts.
    """
    assert job.output_path and job.checkpoint_s3_uri, "a job is resolved before it is rendered"
    body: dict[str, Any] = {
        "job_name": job.job_name,
        "host_count": job.host_count,
        "instance_type": job.instance_types[0] if job.instance_types and not job.instance_groups else "local",
        "channels": channel_entries(job),
        "settings": base_settings(job, master_port).to_dict(),
        "environment": job.shown_environment,
        "max_retry_attempts": job.max_retry_attempts,
        "max_preemptions": max_preemptions,
    }
    if job.spare_hosts:
        body["spare_hosts"] = job.spare_hosts
    if job.min_instance_count:
        if job.min_instance_count > job.host_count:
            raise InvalidJob(
                f"min_instance_count: {job.min_instance_count} is more than instance_count, {job.host_count}",
                hint="Lower it: it is the smallest number of hosts with which the job continues.",
            )
        body["min_instance_count"] = job.min_instance_count
    if job.notify:
        body["notify"] = msgspec.to_builtins(job.notify)
    if job.max_run is not None:
        body["max_run"] = job.max_run
    if job.cost_terms is not None:
        body["cost_terms"] = msgspec.to_builtins(job.cost_terms)
    if job.arguments:
        body["arguments"] = job.arguments
    if job.instance_groups:
        body["instance_groups"] = [
            {
                "instance_group_name": group.instance_group_name,
                "instance_type": group.instance_type,
                "instance_count": group.instance_count,
            }
            for group in job.instance_groups
        ]
    return body


def base_settings(job: TrainingJob, master_port: int) -> Settings:
    """The settings of a job that do not depend on the platform. Without an ``output_path``, nothing is uploaded."""
    return settings_of(
        job,
        output_uri=join_uri(job.output_path, job.job_name or "", "output") if job.output_path else "",
        checkpoint_uri=job.checkpoint_s3_uri or "",
        compress_output=not job.disable_output_compression,
        master_port=master_port,
        metric_definitions=tuple((item["Name"], item["Regex"]) for item in job.metric_definitions),
    )


def settings_of(job: TrainingJob, **own: Any) -> Settings:
    """The settings that are the same on every platform, with a platform's ``own``."""
    assert job.job_name, "a job is named before it is rendered"
    same = Settings(
        job_name=job.job_name,
        source_sha256=job.source.sha256 if job.source else "",
        git_commit=job.source.git_commit if job.source else "",
        max_source_size=job.source_limits.size,
        max_source_files=job.source_limits.files,
        hidden_variables=",".join(job.secrets),
        stop_grace=job.stop_grace,
        hang_after=job.hang_after,
        on_hang=job.on_hang,
        hang_timeout=job.hang_timeout or 0.0,
        join_timeout=job.join_timeout,
        host_timeout=job.host_timeout,
        timeline=job.timeline,
        samples=job.samples,
    )
    return replace(same, **own)


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

    Each has its ``uri``; the other fields are those of ``inputdataconfig.json``. A model to start from is provided as
    files.
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
