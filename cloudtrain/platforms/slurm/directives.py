"""``platform_options`` of Slurm, and the ``#SBATCH`` lines of a job."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.batch.render import COUNT, LINE, ONE_LINE, ClusterOptions, ranks_on_node
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.slurm.time_limits import limit_seconds
from cloudtrain.runtime.slurm.continuation import EARLY_SECONDS, notice_seconds
from cloudtrain.spec import TrainingJob, convert

_LINES = Annotated[str, Meta(min_length=1)] | list[LINE]
"""One or more. The pattern is checked later, because in a union with a list it makes msgspec 0.22 crash at exit."""


class SlurmOptions(ClusterOptions, frozen=True, forbid_unknown_fields=True):
    """The options of a job on a cluster with Slurm, each of which is one line of its batch script.

    Options that are not given are left to the cluster: its default partition, memory and time limit.
    """

    profile: LINE | None = None
    clusters: _LINES | None = None
    poll_seconds: Annotated[float, Meta(ge=1)] = 10.0
    partition: _LINES | None = None
    account: LINE | None = None
    qos: LINE | None = None
    reservation: _LINES | None = None
    constraint: LINE | None = None
    nodelist: _LINES | None = None
    exclude: _LINES | None = None
    exclusive: bool | LINE = False
    comment: LINE | None = None
    wckey: LINE | None = None
    nice: int | None = None
    licenses: _LINES | None = None
    switches: LINE | COUNT | None = None
    segment: COUNT | None = None
    begin: LINE | None = None
    deadline: LINE | None = None
    mail_user: LINE | None = None
    mail_type: _LINES | None = None
    gpus: COUNT | None = None
    gpu_type: LINE | None = None
    gpu_style: Literal["auto", "gres", "gpus-per-node"] = "auto"
    gres: _LINES | None = None
    cpus_per_task: COUNT | None = None
    mem: LINE | COUNT | None = None
    mem_per_gpu: LINE | COUNT | None = None
    mem_per_cpu: LINE | COUNT | None = None
    tmp: LINE | COUNT | None = None
    time: LINE | COUNT | None = None
    array_parallelism: COUNT | None = None
    requeue: Literal["auto", "always", "chain", "never"] = "auto"
    sbatch: dict[str, Any] = field(default_factory=dict)
    srun: list[LINE] = field(default_factory=list)
    container: Literal["none", "pyxis", "apptainer", "enroot", "charliecloud", "oci"] | None = None
    launcher_srun: bool | Literal["pmix", "pmi2"] = False

    @classmethod
    def of(cls, job: TrainingJob) -> SlurmOptions:
        """Raises InvalidJob."""
        check_own_options("slurm", job.platform_options)
        options = convert(job.platform_options, cls, "platform_options")
        for name in cls.__struct_fields__:
            value = getattr(options, name)
            if isinstance(value, str) and not re.match(ONE_LINE, value):
                raise InvalidJob(
                    f"platform_options.{name}: {value!r} is not one line of text",
                    hint="Remove line ends and other control characters.",
                )
        return options


SBATCH_FLAGS = (
    "account",
    "qos",
    "reservation",
    "constraint",
    "nodelist",
    "exclude",
    "exclusive",
    "comment",
    "wckey",
    "nice",
    "licenses",
    "switches",
    "segment",
    "begin",
    "deadline",
    "mail_user",
    "mail_type",
)
"""The options that are flags of sbatch with the same names."""
MEMORY = ("mem", "mem_per_gpu", "mem_per_cpu")

PROTECTED = {
    "job-name": "the job's name is how cloudtrain finds it: set job_name",
    "output": "cloudtrain shows this file: the output of the ranks is in cloudtrain logs",
    "error": "cloudtrain shows the output: the output of the ranks is in cloudtrain logs",
    "open-mode": "the output of an earlier attempt is kept",
    "nodes": "set instance_count",
    "ntasks": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "ntasks-per-node": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "ntasks-per-gpu": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "gpus-per-task": "a node has one task, the runtime, whatever the number of ranks: set gpus, those of a node",
    "signal": "cloudtrain uses it for the notice before the end: set stop_grace",
    "export": "cloudtrain passes secrets on in a file that only you can read",
    "export-file": "cloudtrain passes secrets on in a file that only you can read",
    "chdir": "the working folder of the script is its source",
    "wrap": "cloudtrain writes the script itself",
    "parsable": "cloudtrain reads the answer of sbatch",
    "wait": "cloudtrain wait JOB does this",
    "test-only": "cloudtrain submit --dry-run does this",
    "array": "each element is a separate job: cloudtrain submit --array",
    "tasks-per-node": "cloudtrain starts one runtime on each node, which starts the ranks: set processes_per_host",
    "hint": "it changes how many processors a rank may use; set cpus_per_task",
}
"""Flags of sbatch that cloudtrain sets itself, with the reason. sbatch also accepts the beginning of a name."""
SHORT = {
    "J": "job-name",
    "o": "output",
    "e": "error",
    "N": "nodes",
    "n": "ntasks",
    "D": "chdir",
    "W": "wait",
    "a": "array",
}
"""The short forms of protected flags."""

SRUN_PROTECTED = (
    *("nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "output", "error", "input", "export", "label"),
    *("kill-on-bad-exit", "wait", "multi-prog", "pty", "help", "usage", "version", "test-only", "chdir"),
)
"""Flags of srun that cloudtrain sets itself, or that change what it reads from the nodes."""
SRUN_SHORT = ("-N", "-n", "-o", "-e", "-i", "-l", "-K", "-W", "-D", "-h", "-V")
"""The short forms."""


@dataclass(frozen=True)
class Directive:
    """One ``#SBATCH`` line. Without a value, it is a switch."""

    flag: str
    value: str | None = None
    comment: str = ""

    def to_line(self) -> str:
        name = f"--{self.flag}"
        return f"#SBATCH {name}" if self.value is None else f"#SBATCH {name}={quoted(self.value)}"

    def lines(self) -> list[str]:
        return [*([f"# {self.comment}"] if self.comment else []), self.to_line()]


def quoted(text: str) -> str:
    """``text`` as one value in a directive. Slurm interprets a backslash between quotes of any kind."""
    return shlex.quote(text).replace("\\", "\\\\")


def directives(job: TrainingJob, options: SlurmOptions, output: str) -> list[Directive]:
    """All directives, in order; those of ``platform_options.sbatch`` go last.

    Args:
        output: the file for the output of Slurm and of the lines of the script.

    Raises InvalidJob for a flag that cloudtrain sets itself.
    """
    own = [
        *_identity(job, output),
        *_shape(job, options),
        *_resources(job, options),
        *limit_directives(job, options),
    ]
    raw = list(_raw(options.sbatch))
    check_srun_flags(options.srun)
    given = {directive.flag for directive in raw}
    return [*(directive for directive in own if directive.flag not in given), *raw]


def _identity(job: TrainingJob, output: str) -> Iterator[Directive]:
    assert job.job_name
    yield Directive("job-name", job.job_name)
    note = "what Slurm and this script print; the output of the ranks is in job.log, next to it"
    if "\\" in output:
        raise InvalidJob(
            f"platform_options.folder: Slurm cannot write to a path with a backslash: {output}",
            hint="Choose another folder.",
        )
    yield Directive("output", output.replace("%", "%%"), note)
    yield Directive("open-mode", "append")


def _shape(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    yield Directive("nodes", str(job.host_count + job.spare_hosts))
    if job.spare_hosts:
        yield Directive("no-kill", comment="a spare node takes the place of one that is lost")
    elif job.min_instance_count:
        yield Directive("no-kill", comment="the job continues without a node that is lost")
    yield Directive("ntasks-per-node", "1", "one runtime on each node, which starts the ranks")
    if options.clusters is not None:
        yield Directive("clusters", joined(options.clusters))
    if options.partition is not None:
        yield Directive("partition", joined(options.partition))
    for name in SBATCH_FLAGS:
        value = getattr(options, name)
        if value is None or value is False:
            continue
        yield Directive(name.replace("_", "-"), None if value is True else joined(value))


def _resources(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    if options.gres is not None:
        yield Directive("gres", joined(options.gres))
    elif options.gpus is not None:
        count = f"{options.gpu_type}:{options.gpus}" if options.gpu_type else str(options.gpus)
        if options.gpu_style == "gpus-per-node":
            yield Directive("gpus-per-node", count)
        else:
            yield Directive("gres", f"gpu:{count}")
    if options.cpus_per_task is not None:
        yield Directive("cpus-per-task", str(options.cpus_per_task), "all ranks of a node share them")
    elif (ranks := ranks_on_node(job, _gpus(options))) > 1:
        # unlike cpus-per-task, this reduces neither whole nodes nor the CPUs that a partition adds for each GPU
        yield Directive("mincpus", str(ranks), "one for each rank of a node, at least")
    for name in MEMORY:
        value = getattr(options, name)
        if value is not None:
            yield Directive(name.replace("_", "-"), str(value))
    if options.tmp is not None:
        yield Directive("tmp", str(options.tmp))


def _gpus(options: SlurmOptions) -> int | None:
    """The GPUs of each node."""
    found = re.search(r"\bgpu(?::[^:,]+)?:(\d+)", joined(options.gres)) if options.gres else None
    return int(found[1]) if found else options.gpus


def limit_directives(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    """Raises InvalidJob for an invalid time limit."""
    limit = None if options.time is None else limit_seconds(options.time)
    notice = math.ceil(notice_seconds(job.stop_grace, limit))
    yield from _time(job, options, notice)
    note = "a notice ahead of the time limit, to save a checkpoint"
    yield Directive("signal", f"B:USR1@{notice}", note)
    if options.requeue == "never":
        yield Directive("no-requeue")
    else:
        yield Directive(
            "requeue", comment="after a preemption, a time limit or the loss of a node, it continues"
        )
    yield Directive(
        "kill-on-invalid-dep", "yes", "a job that waits for one that has failed does not wait forever"
    )


def _time(job: TrainingJob, options: SlurmOptions, notice: int) -> Iterator[Directive]:
    """The time limit, if the job sets one. Otherwise, the default of the partition applies."""
    if options.time is not None:
        note = f"; max_run of {job.max_run} s is that of all of them" if job.max_run else ""
        yield Directive("time", str(options.time), f"of one submission{note}")
    elif job.max_run is not None:
        minutes = math.ceil((job.max_run + notice + EARLY_SECONDS) / 60)
        yield Directive(
            "time", str(minutes), f"max_run of {job.max_run} s, and {notice + EARLY_SECONDS} s for the end"
        )


LimitOf = Callable[[str, str], "tuple[int, str] | None"]
"""See `time_limits.limit_of_cluster`, for the shell of one cluster."""


def limit_warnings(job: TrainingJob, options: SlurmOptions, limit_of: LimitOf) -> list[str]:
    """A warning about a time limit that is short compared with the notice, the grace and the end of the job."""
    if options.time is not None:
        limit, whose = limit_seconds(options.time), "platform_options.time"
    elif job.max_run is None:
        wanted = options.partition
        names = ",".join(wanted) if isinstance(wanted, list) else wanted
        found = limit_of(names or "", options.qos or "")
        if found is None:
            return []
        limit, whose = found
    else:
        return []
    asked, needed = notice_seconds(job.stop_grace), notice_seconds(job.stop_grace, limit)
    if needed >= asked:
        return []
    again = (
        "" if options.requeue == "always" else ", and is not restarted if it has saved no checkpoint by then"
    )
    return [
        f"{whose}: the time limit is {limit / 60:g} min. The job begins to end {math.ceil(needed)} s before it, where "
        f"it would take {asked:g} s{again}. A longer limit: platform_options.time, another partition or QOS"
    ]


def _raw(flags: Mapping[str, Any]) -> Iterator[Directive]:
    for name, value in flags.items():
        flag = name.lstrip("-").replace("_", "-")
        flag = SHORT.get(flag, flag)
        meant = next((full for full in PROTECTED if flag[1:] and full.startswith(flag)), "")
        if meant:
            raise InvalidJob(
                f"platform_options.sbatch.{name}: cloudtrain sets this flag itself",
                hint=f"Leave it out: {PROTECTED[meant]}.",
            )
        if not flag[1:] or not flag.replace("-", "").isalnum() or not flag.isascii():
            raise InvalidJob(
                f"platform_options.sbatch: {name!r} is not a flag of sbatch",
                hint="Write its long form without the dashes, for example: mail-type",
            )
        if value is False or value is None:
            continue
        text = None if value is True else joined(value)
        if text is not None and any(character < " " for character in text):
            raise InvalidJob(
                f"platform_options.sbatch.{name}: a value is one line", hint="Remove the line end."
            )
        yield Directive(flag, text)


def check_srun_flags(flags: Sequence[str]) -> None:
    """Raises InvalidJob for flags with which srun would not start one runtime on each node, or hide its output."""
    for number, text in enumerate(flags):
        flag = text.partition("=")[0]
        is_long = flag.startswith("--")
        meant = next(
            (full for full in SRUN_PROTECTED if is_long and flag[3:] and full.startswith(flag[2:])), ""
        )
        if meant or (not is_long and flag[:2] in SRUN_SHORT) or (number == 0 and not flag.startswith("-")):
            raise InvalidJob(
                f"platform_options.srun: {text!r}: cloudtrain sets this itself",
                hint="srun starts one runtime on each node, and cloudtrain reads its output. Leave it out.",
            )


def joined(value: str | int | float | Sequence[Any]) -> str:
    """One or several values in the form that sbatch accepts."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
