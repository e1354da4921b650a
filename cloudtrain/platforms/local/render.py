"""A job as the request that the local supervisor carries out."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, Struct

from cloudtrain.contract import Settings, encode_hyperparameters
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.launcher import runtime_hyperparameters
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.spec import (
    Channel,
    FileSystemInput,
    TrainingInput,
    TrainingJob,
    convert,
    is_secret_name,
    redact,
)
from cloudtrain.storage import join_uri, state_home

_CHANNEL_FIELDS = (
    "attribute_names",
    "compression",
    "record_wrapping",
    "shuffle_config",
    "target_attribute_name",
)
"""Fields of a channel that only a data loader of the platform can honour."""


class LocalOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """``platform_options`` of the local platform.

    ``python`` is the interpreter that runs the job, else this one; ``master_port`` the port on which rank 0
    listens, 0 for a free one; ``max_preemptions`` how often a preempted job is started again, which does not
    count as a retry.
    """

    python: str | None = None
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which has a name and a packed source.

    Raises:
        InvalidJob: the job wants something that the local platform has not.
    """
    assert job.job_name, "a job is named before it is rendered"
    options = convert(job.platform_options, LocalOptions, "platform_options")
    _check(job)
    hosts = [f"algo-{number + 1}" for number in range(job.host_count)]
    environment = {**job.environment, **_settings(job, options).to_environ()}
    body: dict[str, Any] = {
        "job_name": job.job_name,
        "hosts": hosts,
        "instance_type": job.instance_type or "local",
        "python": _interpreter(options),
        "hyperparameters": encode_hyperparameters({**job.hyperparameters, **runtime_hyperparameters(job)}),
        "channels": {name: _channel_config(job, channel) for name, channel in job.channels.items()},
        "environment": redact(environment),
        "max_run": job.max_run,
        "max_retry_attempts": job.max_retry_attempts,
        "max_preemptions": options.max_preemptions,
        "stop_grace": job.stop_grace,
    }
    if job.instance_groups:
        body["instance_groups"] = _instance_groups(job, hosts)
    secrets = {name: value for name, value in environment.items() if is_secret_name(name)}
    return Request("local", job.job_name, body, secrets)


def _check(job: TrainingJob) -> None:
    if job.entry_point is None:
        raise InvalidJob("entry_point: the local platform needs one", hint="Name the script to run.")
    for field in ("container_entry_point", "container_arguments", "checkpoint_local_path"):
        if getattr(job, field):
            raise InvalidJob(f"{field}: the local platform has no containers", hint="Leave it out.")
    for name, channel in job.inputs.items():
        if isinstance(channel, FileSystemInput):
            raise InvalidJob(
                f"inputs.{name}: the local platform mounts no file systems",
                hint="Give the data's own place: a file:// or s3:// URI.",
            )
        if "Pipe" in (channel.input_mode, job.input_mode):
            raise InvalidJob(
                f"inputs.{name}: the local platform has no Pipe mode", hint="Use File or FastFile."
            )
        if channel.s3_data_type != "S3Prefix":
            raise InvalidJob(f"inputs.{name}: the local platform reads S3Prefix, not {channel.s3_data_type}")
        for field in _CHANNEL_FIELDS:
            if getattr(channel, field) not in (None, "None"):
                raise InvalidJob(
                    f"inputs.{name}.{field}: the local platform gives files as they are",
                    hint="Leave it out, and let the script do it.",
                )
        if channel.instance_groups:
            raise InvalidJob(
                f"inputs.{name}.instance_groups: the local platform gives a channel to all hosts",
                hint="Leave it out.",
            )


def _interpreter(options: LocalOptions) -> str:
    """The absolute path of the interpreter, which is not resolved: a virtual environment is a link."""
    if options.python is None:
        return sys.executable
    found = shutil.which(options.python)
    if found is None:
        raise InvalidJob(
            f"platform_options.python: there is no program {options.python!r}",
            hint="Give the path of a Python that has cloudtrain, or leave it out.",
        )
    return os.path.abspath(found)


def _instance_groups(job: TrainingJob, hosts: list[str]) -> list[dict[str, Any]]:
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


def _settings(job: TrainingJob, options: LocalOptions) -> Settings:
    assert job.job_name
    folder = JobFolder.of("local", job.job_name)
    output = join_uri(job.output_path, job.job_name) if job.output_path else folder.path.as_uri()
    return Settings(
        job_name=job.job_name,
        output_uri=join_uri(output, "output"),
        checkpoint_uri=job.checkpoint_s3_uri or (folder.path / "checkpoints").as_uri(),
        source_sha256=job.source.sha256 if job.source else "",
        compress_output=not job.disable_output_compression,
        channels=tuple((name, _uri(channel)) for name, channel in job.channels.items()),
        rendezvous=str(folder.path / "leader"),
        master_addr="127.0.0.1",
        master_port=options.master_port,
        events=str(folder.events),
        hosts_on_machine=job.host_count,
        requirements_cache=str(state_home() / "environments"),
        metric_definitions=tuple((item["Name"], item["Regex"]) for item in job.metric_definitions),
        stop_grace=job.stop_grace,
        hang_timeout=job.hang_timeout or 0.0,
    )


def _uri(channel: Channel) -> str:
    assert isinstance(channel, TrainingInput)
    return channel.s3_data


def _channel_config(job: TrainingJob, channel: Channel) -> dict[str, Any]:
    """One entry of ``inputdataconfig.json``, as SageMaker writes it."""
    assert isinstance(channel, TrainingInput)
    config = {
        "TrainingInputMode": channel.input_mode or job.input_mode,
        "S3DistributionType": channel.distribution or "FullyReplicated",
        "RecordWrapperType": channel.record_wrapping or "None",
    }
    return {**config, "ContentType": channel.content_type} if channel.content_type else config
