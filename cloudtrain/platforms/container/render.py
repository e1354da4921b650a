"""The options of a job in containers, and the request for its supervisor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from cloudtrain.contract import Paths
from cloudtrain.contract.host import share_of, visible_gpus
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.contract.text import counted
from cloudtrain.engine.client import Bind
from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import InvalidJob
from cloudtrain.images import AUTO
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.bundled_runtime import (
    DEFAULT_CHECKPOINTS,
    SOURCE_CHANNEL,
    check_bundled_runtime,
    check_channel_names,
)
from cloudtrain.platforms.common.hyperparameters import encoded_hyperparameters
from cloudtrain.platforms.common.places import shares_of_machine
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.common.request import base_body, check_channels, new_request
from cloudtrain.platforms.common.runtime_choice import choose_runtime, explained
from cloudtrain.platforms.common.toolkit import toolkit_hyperparameters
from cloudtrain.platforms.container.runtime_files import ENTRYPOINT
from cloudtrain.spec import TrainingJob, convert
from cloudtrain.storage import split_uri

NAME = "container"

TRAIN = "train"
"""The argument that SageMaker passes to an image's own entry point."""


def resolve(job: TrainingJob) -> TrainingJob:
    """``job`` with a concrete image instead of ``auto``. Checks that the job's local folders exist.

    Raises:
        InvalidJob: this platform cannot run the job, or the engine lacks the image.
        PlatformError: the image is ``auto``, and no engine answers.
    """
    options = ContainerOptions.of(job)
    _check(job, options)
    for volume in options.volumes:
        folder = Bind.parse(volume).source
        if not os.path.exists(folder):
            raise InvalidJob(f"platform_options.volumes: there is no {folder} on this machine")
    source = _mounted_source(job, options)
    if source:
        if not source.is_dir():
            raise InvalidJob(f"platform_options.mount_source: {source} is not a folder on this machine")
        given = {**job.platform_options, "mount_source": str(source)}
        job = msgspec.structs.replace(job, platform_options=given)
    if job.image_uri != AUTO:
        return job
    from cloudtrain.images import local_image

    client = find_engine(options.engine).connect()
    return msgspec.structs.replace(job, image_uri=local_image(job, client, gpu=bool(_gpus(job, options))))


def render(job: TrainingJob) -> Request:
    """The request for ``job``, which is resolved, has a name and, if it has an entry point, a packed source.

    Raises:
        InvalidJob: the container platform cannot run the job.
    """
    options = ContainerOptions.of(job)
    runtime = choose_runtime(job)
    _check(job, options)
    with explained(job):
        program = _own_program(job) if runtime == "toolkit" else _bundled_runtime(job, options)
    body: dict[str, Any] = {
        **base_body(job, master_port=options.master_port, max_preemptions=options.max_preemptions),
        "image": job.image_uri,
        "pull": options.pull,
        "runtime": runtime,
        **program,
        "resources": {
            "gpus": _gpus(job, options),
            "memory": options.memory,
            "shm_size": options.shm_size,
        },
        "capabilities": [name.removeprefix("CAP_") for name in options.capabilities],
        "new_privileges": options.new_privileges,
        "volumes": options.volumes,
        "checkpoint_path": job.checkpoint_local_path or DEFAULT_CHECKPOINTS,
        "network_isolation": job.enable_network_isolation,
    }
    if options.engine:
        body["engine"] = options.engine
    return new_request(NAME, job, body)


def _bundled_runtime(job: TrainingJob, options: ContainerOptions) -> dict[str, Any]:
    """Fields for a container that runs cloudtrain's runtime. The runtime and the source are mounted."""
    folder = _mounted_source(job, options)
    source = None if folder else job.source
    return {
        "entrypoint": list(ENTRYPOINT),
        "command": [],
        "source": folder.as_uri() if folder else (source.uri if source else None),
        "hyperparameters": encoded_hyperparameters(msgspec.structs.replace(job, source=source)),
    }


def _own_program(job: TrainingJob) -> dict[str, Any]:
    """Fields for a container that runs its image's own program, with the same input as on SageMaker.

    If the program is a toolkit, it reads the source from a file.
    """
    source_file = ""
    if job.source:
        source_file = str(Paths(Path(DEFAULT_BASE)).channel(SOURCE_CHANNEL) / split_uri(job.source.uri)[1])
    # with the default grace, because the supervisor enforces the job's grace
    limited = msgspec.structs.replace(job, stop_grace=TrainingJob().stop_grace)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    own = {"entrypoint": job.container_entry_point} if job.container_entry_point else {}
    return {
        **own,
        "command": job.container_arguments or ([] if own else [TRAIN]),
        "source": job.source.uri if job.source else None,
        "hyperparameters": toolkit_hyperparameters(limited, source_file, job.output_path or "", region),
    }


def _check(job: TrainingJob, options: ContainerOptions) -> None:
    if not job.image_uri:
        raise InvalidJob(
            "image_uri: the container platform needs an image",
            hint="For an image of cloudtrain: --image auto (image_uri). Without an image: --platform local.",
        )
    check_channels(job, NAME)
    if choose_runtime(job) == "cloudtrain":
        check_bundled_runtime(job)
        return
    if job.source:
        check_channel_names(job)
    if options.mount_source:
        raise InvalidJob(
            "platform_options.mount_source: an image's own program unpacks its source itself",
            hint='Leave it out, or use runtime="cloudtrain".',
        )


def _gpus(job: TrainingJob, options: ContainerOptions) -> int | str | list[str] | None:
    return options.gpus or ("all" if job.instance_type == "local_gpu" else None)


def placed(fields: Mapping[str, Any], number: int, jobs: int, per_host: int | None) -> Mapping[str, Any]:
    """See `cloudtrain.platforms.Places`. Assigns the GPUs of the containers of a job by name."""
    names = ("platform_options", "instance_count", "instance_groups", "instance_type")
    given = {name: fields[name] for name in names if fields.get(name) is not None}
    job = TrainingJob.from_dict({**given, "platform": NAME})
    options = ContainerOptions.of(job)
    wanted = _gpus(job, options)
    present = wanted if isinstance(wanted, list) else visible_gpus({}) if wanted else ()
    shares = shares_of_machine(present, jobs, per_host)
    if shares == 1 or not present:
        return fields
    if job.host_count > 1:
        raise InvalidJob(
            f"parallel: trials of {job.host_count} hosts would use the same GPUs of this machine",
            hint="Set parallel 1, or instance_count 1.",
        )
    if not isinstance(wanted, int):
        own = share_of(present, number, shares)
    elif wanted * shares <= len(present):
        own = present[number * wanted :][:wanted]
    else:
        raise InvalidJob(
            f"parallel: {shares} trials of {counted(wanted, 'GPU')} at the same time, and this machine has "
            f"{len(present)}",
            hint="Decrease parallel, trials_per_host or platform_options.gpus.",
        )
    return {**fields, "platform_options": {**job.platform_options, "gpus": list(own)}}


def _mounted_source(job: TrainingJob, options: ContainerOptions) -> Path | None:
    """The folder to mount as the source; None if the job uses an archive."""
    wanted = options.mount_source
    if not wanted:
        return None
    path = job.source_dir if wanted is True else wanted
    if path is None:
        raise InvalidJob(
            "platform_options.mount_source: the job has no source_dir",
            hint="Set source_dir to the folder of the script.",
        )
    if job.dependencies:
        raise InvalidJob(
            "dependencies: cannot be added to a mounted source",
            hint="Put them in the source folder, or leave out platform_options.mount_source.",
        )
    return Path(path).absolute()


_CAPABILITY = Annotated[str, Meta(pattern=r"^[A-Z][A-Z_]*$")]
_SIZE = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?[bkmgBKMG]?$")]


class ContainerOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job in containers. Sizes have Docker's format: ``512m``, ``4g``.

    ``engine`` is ``docker``, ``podman`` or a URL; None selects the first engine that answers. ``gpus`` is ``"all"``,
    the number of GPUs of each host, or the names of the GPUs that every host uses. ``memory`` limits each host.
    ``shm_size`` limits its ``/dev/shm``; None means half of the machine's memory, as on Linux itself. ``volumes`` are
    additional folders: ``/here:/there`` or ``/here:/there:ro``. ``mount_source``, a path or true for ``source_dir``,
    mounts this directory itself, read-only, instead of its archive. ``capabilities`` are Linux capabilities that
    root in the container gets in addition, and ``new_privileges`` allows programs such as ``sudo`` to become root.
    ``master_port`` and ``max_preemptions`` are as on ``local``.
    """

    engine: str | None = None
    gpus: int | Literal["all"] | list[str] | None = None
    memory: _SIZE | None = None
    shm_size: _SIZE | None = None
    volumes: list[str] = []
    pull: Literal["missing", "always", "never"] = "missing"
    mount_source: bool | str = False
    capabilities: list[_CAPABILITY] = []
    new_privileges: bool = False
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10

    @classmethod
    def of(cls, job: TrainingJob) -> ContainerOptions:
        """Raises InvalidJob."""
        check_own_options("container", job.platform_options)
        options = convert(job.platform_options, cls, "platform_options")
        if isinstance(options.gpus, int) and options.gpus < 1:
            raise InvalidJob(
                f"platform_options.gpus: {options.gpus} is not positive", hint="Leave it out for none."
            )
        for volume in options.volumes:
            Bind.parse(volume)
        return options
