"""``platform_options`` of the container platform."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.container.values import parse_volume
from cloudtrain.spec import TrainingJob, convert

_SIZE = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?[bkmgBKMG]?$")]


class ContainerOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """What a job can ask of the engine. Sizes are as Docker takes them: ``512m``, ``4g``.

    ``engine`` is ``docker``, ``podman`` or a URL; None: the first that answers. ``gpus`` is ``"all"``, how many each
    host gets, or the names that each host gets. ``memory`` limits each host; ``shm_size`` is the most that its
    ``/dev/shm`` takes, None for half of the machine's memory, as on Linux itself. ``volumes`` are further folders,
    ``/here:/there`` or ``/here:/there:ro``. ``mount_source`` puts the source directory itself, read-only, in place
    of its archive: a path, or true for ``source_dir``. ``master_port`` and ``max_preemptions`` are as on ``local``.
    """

    engine: str | None = None
    gpus: int | Literal["all"] | list[str] | None = None
    memory: _SIZE | None = None
    shm_size: _SIZE | None = None
    volumes: list[str] = []
    pull: Literal["missing", "always", "never"] = "missing"
    mount_source: bool | str = False
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10

    @classmethod
    def of(cls, job: TrainingJob) -> ContainerOptions:
        """Raises InvalidJob."""
        options = convert(job.platform_options, cls, "platform_options")
        if isinstance(options.gpus, int) and options.gpus < 1:
            raise InvalidJob(f"platform_options.gpus: {options.gpus} is none", hint="Leave it out.")
        for volume in options.volumes:
            parse_volume(volume)
        return options
