"""A job as the request that the supervisor of its containers carries out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from cloudtrain.contract import Paths, Settings, encode_hyperparameters
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import InvalidJob
from cloudtrain.images import AUTO
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.channels import (
    channel_configs,
    check_channels,
    instance_groups,
)
from cloudtrain.platforms.common.container_entrypoint import ENTRYPOINT, SOURCE_CHANNEL
from cloudtrain.platforms.common.hyperparameters import runtime_hyperparameters
from cloudtrain.platforms.common.request import job_settings
from cloudtrain.platforms.container.options import ContainerOptions, parse_volume
from cloudtrain.platforms.supervised.folder import JobFolder
from cloudtrain.runtime.host_config import RUNTIME_CHANNEL
from cloudtrain.spec import Source, TrainingJob, is_secret_name, redact
from cloudtrain.storage import split_uri

NAME = "container"

TRAIN = "train"
"""What SageMaker gives to an image's own entry point."""


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which has a name and, if it has an entry point, a packed source.

    Raises:
        InvalidJob: the job wants something that the container platform has not.
        PlatformError: the image is ``auto``, and no engine answers that could say which it has.
    """
    assert job.job_name, "a job is named before it is rendered"
    options = ContainerOptions.of(job)
    runtime = job.runtime or ("cloudtrain" if job.entry_point else "toolkit")
    _check(job, options, runtime)
    hosts = [f"algo-{number + 1}" for number in range(job.host_count)]
    environment = {**job.environment, **_settings(job, options).to_environ()}
    body: dict[str, Any] = {
        "job_name": job.job_name,
        "hosts": hosts,
        "instance_type": job.instance_type or "local",
        "image": _image(job, options),
        "pull": options.pull,
        "runtime": runtime,
        **(_own_program(job) if runtime == "toolkit" else _traveling(job, options)),
        "channels": channel_configs(job),
        "environment": redact(environment),
        "resources": {
            "gpus": _gpus(job, options),
            "memory": options.memory,
            "shm_size": options.shm_size,
        },
        "volumes": options.volumes,
        "checkpoint_path": job.checkpoint_local_path or f"{DEFAULT_BASE}/checkpoints",
        "network_isolation": job.enable_network_isolation,
        "max_run": job.max_run,
        "max_retry_attempts": job.max_retry_attempts,
        "max_preemptions": options.max_preemptions,
        "stop_grace": job.stop_grace,
    }
    if options.engine:
        body["engine"] = options.engine
    if job.instance_groups:
        body["instance_groups"] = instance_groups(job, hosts)
    secrets = {name: value for name, value in environment.items() if is_secret_name(name)}
    return Request(NAME, job.job_name, body, secrets)


def _traveling(job: TrainingJob, options: ContainerOptions) -> dict[str, Any]:
    """The container runs cloudtrain's runtime, which comes in as a file; so does the source."""
    folder = _mounted_source(job, options)
    source = None if folder else job.source
    told = runtime_hyperparameters(msgspec.structs.replace(job, source=source))
    return {
        "entrypoint": list(ENTRYPOINT),
        "command": [],
        "source": folder or (source.uri if source else None),
        "hyperparameters": encode_hyperparameters({**job.hyperparameters, **told}),
    }


def _own_program(job: TrainingJob) -> dict[str, Any]:
    """The container runs what its image is made for, told as on SageMaker; its toolkit finds the source as a file."""
    from cloudtrain.platforms.common.toolkit import with_toolkit

    source = None
    if job.source:
        path = Paths(Path(DEFAULT_BASE)).channel(SOURCE_CHANNEL) / split_uri(job.source.uri)[1]
        source = Source(str(path), "")
    # the grace is the supervisor's to give
    told = msgspec.structs.replace(job, source=source, stop_grace=TrainingJob().stop_grace)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    body = with_toolkit({"OutputDataConfig": {"S3OutputPath": job.output_path or ""}}, told, region)
    own = {"entrypoint": job.container_entry_point} if job.container_entry_point else {}
    return {
        **own,
        "command": job.container_arguments or ([] if own else [TRAIN]),
        "source": job.source.uri if job.source else None,
        "hyperparameters": body.get("HyperParameters", {}),
    }


def _check(job: TrainingJob, options: ContainerOptions, runtime: str) -> None:
    check_channels(job, NAME)
    for volume in options.volumes:
        folder = parse_volume(volume)[0]
        if not os.path.exists(folder):
            raise InvalidJob(f"platform_options.volumes: there is no {folder} on this machine")
    for name in (RUNTIME_CHANNEL, SOURCE_CHANNEL) if job.source else ():
        if name in job.channels:
            raise InvalidJob(
                f"inputs.{name}: runtime and source come in a channel of this name",
                hint="Give the channel another name.",
            )
    if runtime == "toolkit":
        if options.mount_source:
            raise InvalidJob(
                "platform_options.mount_source: an image's own program unpacks its source itself",
                hint='Leave it out, or use runtime="cloudtrain".',
            )
        return
    if job.entry_point is None:
        raise InvalidJob(
            "entry_point: cloudtrain's runtime needs one", hint="Name the script to run; or no runtime."
        )
    for field in ("container_entry_point", "container_arguments"):
        if getattr(job, field):
            raise InvalidJob(
                f"{field}: cloudtrain's runtime starts the container itself",
                hint='Run the program as the job\'s entry_point, a shell script, say; or use runtime="toolkit".',
            )
    if job.checkpoint_local_path and not job.checkpoint_local_path.startswith("/"):
        raise InvalidJob(
            f"checkpoint_local_path: {job.checkpoint_local_path!r} is not absolute",
            hint=f"Write {DEFAULT_BASE}/{job.checkpoint_local_path}, or leave it out.",
        )


def _image(job: TrainingJob, options: ContainerOptions) -> str:
    """The image that the job names; of ``auto``, the one that the engine has."""
    if not job.image_uri:
        raise InvalidJob(
            "image_uri: the container platform needs an image",
            hint="image_uri='auto' takes one of cloudtrain's own; platform='local' needs none.",
        )
    if job.image_uri != AUTO:
        return job.image_uri
    from cloudtrain.images import local_image

    return local_image(job, find_engine(options.engine).connect(), gpu=bool(_gpus(job, options)))


def _gpus(job: TrainingJob, options: ContainerOptions) -> int | str | list[str] | None:
    return options.gpus or ("all" if job.instance_type == "local_gpu" else None)


def _mounted_source(job: TrainingJob, options: ContainerOptions) -> str | None:
    """The folder that is mounted as the source, where one is."""
    wanted = options.mount_source
    if not wanted:
        return None
    path = job.source_dir if wanted is True else wanted
    if path is None:
        raise InvalidJob(
            "platform_options.mount_source: the job has no source_dir", hint="Give the folder of the script."
        )
    if job.dependencies:
        raise InvalidJob(
            "dependencies: cannot be put beside a source that is mounted",
            hint="Have them in the source's folder, or leave out platform_options.mount_source.",
        )
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise InvalidJob(f"platform_options.mount_source: {path} is no folder of this machine")
    return folder.as_uri()


def _settings(job: TrainingJob, options: ContainerOptions) -> Settings:
    assert job.job_name
    folder = JobFolder.of(NAME, job.job_name)
    return replace(job_settings(job, folder, options.master_port), source_channel=SOURCE_CHANNEL)
