"""``platform_options`` of the container platform."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from cloudtrain.engine.client import Bind
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.spec import TrainingJob, convert

_CAPABILITY = Annotated[str, Meta(pattern=r"^[A-Z][A-Z_]*$")]
_SIZE = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?[bkmgBKMG]?$")]


class ContainerOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job in containers. Sizes have Docker's format: ``512m``, ``4g``.

    ``engine`` is ``docker``, ``podman`` or a URL; None selects the first engine that answers. ``gpus`` is ``"all"``,
    the number of GPUs of each host, or the names of the GPUs that every host uses. ``memory`` limits each host.
    ``shm_size`` limits its ``/dev/shm``; None means half of the machine's memory, as on Linux itself. ``volumes`` are
    additional folders: ``/here:/there`` or ``/here:/there:ro``. ``mount_source`` mounts the source directory itself,
    read-only, instead of its archive: a path, or true for ``source_dir``. ``capabilities`` are Linux capabilities that
    root in the container gets in addition, and ``new_privileges`` lets programs such as ``sudo`` become root.
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
