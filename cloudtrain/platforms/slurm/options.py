"""``platform_options`` of the Slurm platform."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.spec import TrainingJob, convert

COUNT = Annotated[int, Meta(ge=1)]
LINE = r"^[^\x00-\x1f\x7f]+\Z"
TEXT = Annotated[str, Meta(min_length=1, pattern=LINE)]
"""One line: it becomes a part of a directive."""
TEXTS = Annotated[str, Meta(min_length=1)] | list[TEXT]
"""One or more. The pattern is checked later: in a union with a list, it makes msgspec 0.22 crash at exit."""


class SlurmOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job on a cluster with Slurm, one line of its script each.

    What is not given here is left to the cluster: its default partition, memory and time limit.
    """

    # where
    profile: TEXT | None = None
    login: TEXT | None = None
    folder: TEXT | None = None
    node_folder: TEXT | None = None
    clusters: TEXTS | None = None
    poll_seconds: Annotated[float, Meta(ge=1)] = 10.0
    # what
    partition: TEXTS | None = None
    account: TEXT | None = None
    qos: TEXT | None = None
    reservation: TEXTS | None = None
    constraint: TEXT | None = None
    nodelist: TEXTS | None = None
    exclude: TEXTS | None = None
    exclusive: bool | TEXT = False
    comment: TEXT | None = None
    wckey: TEXT | None = None
    nice: int | None = None
    licenses: TEXTS | None = None
    switches: TEXT | COUNT | None = None
    segment: COUNT | None = None
    begin: TEXT | None = None
    deadline: TEXT | None = None
    mail_user: TEXT | None = None
    mail_type: TEXTS | None = None
    gpus: COUNT | None = None
    gpu_type: TEXT | None = None
    gpu_style: Literal["auto", "gres", "gpus-per-node"] = "auto"
    gres: TEXTS | None = None
    cpus_per_task: COUNT | None = None
    mem: TEXT | COUNT | None = None
    mem_per_gpu: TEXT | COUNT | None = None
    mem_per_cpu: TEXT | COUNT | None = None
    tmp: TEXT | COUNT | None = None
    time: TEXT | COUNT | None = None
    array_parallelism: COUNT | None = None
    requeue: Literal["auto", "always", "chain", "never"] = "auto"
    sbatch: dict[str, Any] = {}
    srun: list[TEXT] = []
    # in what
    modules: list[TEXT] = []
    prologue: list[str] = []
    epilogue: list[str] = []
    python: TEXT | None = None
    container: Literal["none", "pyxis", "apptainer", "enroot", "charliecloud", "oci"] | None = None
    container_mounts: list[TEXT] = []
    container_options: list[TEXT] = []
    container_home: bool = False
    network_interface: TEXT = "auto"
    launcher_srun: bool | Literal["pmix", "pmi2"] = False
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    max_preemptions: Annotated[int, Meta(ge=0)] = 10

    @classmethod
    def of(cls, job: TrainingJob) -> SlurmOptions:
        """Raises InvalidJob."""
        check_own_options("slurm", job.platform_options)
        options = convert(job.platform_options, cls, "platform_options")
        for name in cls.__struct_fields__:
            value = getattr(options, name)
            if isinstance(value, str) and not re.match(LINE, value):
                raise InvalidJob(
                    f"platform_options.{name}: {value!r} is not one line of text",
                    hint="Remove line ends and other control characters.",
                )
        return options
