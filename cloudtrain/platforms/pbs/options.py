"""``platform_options`` of PBS Professional, Torque and Cobalt."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.spec import TrainingJob, convert

COUNT = Annotated[int, Meta(ge=1)]
WORD = Annotated[str, Meta(min_length=1, pattern=r"^[^\s\x00-\x1f\x7f]+$")]
"""A part of a directive: without spaces."""
LINE = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]

ONLY = {"select": "pbs", "place": "pbs", "project": "pbs", "nodes": "torque", "attrs": "cobalt"}
"""The options that one of the three has."""

LACKS = {"cobalt": ("cpus", "gpus", "gpu_type", "mem")}
"""The options that others have: Cobalt gives whole nodes."""


class PbsOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job on PBS Professional, OpenPBS, Torque or Cobalt.

    The defaults of the queue apply to everything that is not given here.
    """

    # where
    folder: LINE | None = None
    node_folder: LINE | None = None
    # what
    queue: WORD | None = None
    account: WORD | None = None
    project: WORD | None = None
    cpus: COUNT | None = None
    gpus: COUNT | None = None
    gpu_type: WORD | None = None
    mem: WORD | None = None
    select: WORD | None = None
    place: WORD | None = None
    nodes: WORD | None = None
    attrs: dict[WORD, str | int] = {}
    directives: list[LINE] = []
    # in what
    start: Literal["auto", "srun", "pbsdsh", "ssh", "aprun"] = "auto"
    modules: list[LINE] = []
    prologue: list[str] = []
    epilogue: list[str] = []
    python: LINE | None = None
    container: Literal["none", "apptainer", "charliecloud", "enroot"] | None = None
    container_mounts: list[LINE] = []
    container_options: list[LINE] = []
    container_home: bool = False
    network_interface: WORD = "auto"
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10

    @classmethod
    def of(cls, job: TrainingJob, platform: str) -> PbsOptions:
        """Raises InvalidJob."""
        check_own_options(platform, job.platform_options)
        options = convert(job.platform_options, cls, "platform_options")
        for name in job.platform_options:
            if ONLY.get(name, platform) != platform or name in LACKS.get(platform, ()):
                raise InvalidJob(
                    f"platform_options.{name}: {platform} has no such request",
                    hint="Leave it out, or write the scheduler's own line in platform_options.directives.",
                )
        return options
