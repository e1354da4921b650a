"""Time limits: of a submission, of its partition as ``sinfo`` prints it, and the notice ahead of them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.slurm.options import SlurmOptions
from cloudtrain.platforms.slurm.squeue import CLEAN
from cloudtrain.runtime.slurm.time_limit import EARLY_SECONDS, notice_seconds
from cloudtrain.spec import TrainingJob


@dataclass(frozen=True)
class Directive:
    """One ``#SBATCH`` line. Without a value, it is a switch."""

    flag: str
    value: str | None = None
    comment: str = ""

    def to_line(self) -> str:
        name = f"--{self.flag}"
        return f"#SBATCH {name}" if self.value is None else f"#SBATCH {name}={quoted(self.value)}"


def quoted(text: str) -> str:
    """``text`` as one value in a directive. For Slurm, a backslash is special between all quotes, too."""
    return shlex.quote(text).replace("\\", "\\\\")


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def limit_directives(job: TrainingJob, options: SlurmOptions) -> Iterator[Directive]:
    """Raises InvalidJob for a time limit that is none."""
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
    """The time limit, if the job sets one: otherwise the default of the partition holds."""
    if options.time is not None:
        note = f"; max_run of {job.max_run} s is that of all of them" if job.max_run else ""
        yield Directive("time", str(options.time), f"of one submission{note}")
    elif job.max_run is not None:
        minutes = math.ceil((job.max_run + notice + EARLY_SECONDS) / 60)
        yield Directive(
            "time", str(minutes), f"max_run of {job.max_run} s, and {notice + EARLY_SECONDS} s for the end"
        )


def limit_seconds(limit: str | int) -> int:
    """Seconds of a time limit as Slurm writes it: ``90`` minutes, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM:SS``.

    Raises InvalidJob.
    """
    found = _TIME.fullmatch(str(limit))
    if not found:
        raise InvalidJob(
            f"platform_options.time: {limit} is not a time limit",
            hint="Write minutes (90), HH:MM:SS (12:00:00) or D-HH:MM:SS (2-00:00:00). There is no UNLIMITED: a job "
            "without a time limit does not start ahead of maintenance, for example.",
        )
    days, *parts = (int(part) if part else None for part in found.groups())
    first, second, third = parts
    assert first is not None
    if days is not None:
        return ((days * 24 + first) * 60 + (second or 0)) * 60 + (third or 0)
    if third is not None:
        return (first * 60 + (second or 0)) * 60 + third
    return first * 60 + (second or 0)


PARTITION_FORMAT = "%P|%a|%l|%D|%G"
"""Partition, with * if it is the default; up or down; time limit; number of nodes; generic resources."""


@dataclass(frozen=True)
class Partition:
    """One partition. ``gres`` has the resources of each kind of its nodes."""

    name: str
    availability: str
    limit: str
    nodes: int
    gres: tuple[str, ...] = ()
    is_default: bool = False

    @property
    def is_up(self) -> bool:
        return self.availability == "up"

    def described(self) -> str:
        limit = "no time limit" if self.limit == "infinite" else f"at most {self.limit}"
        return f"{self.name} has {self.nodes} node{'s' if self.nodes != 1 else ''}, {limit}"


def parse_partitions(text: str) -> Iterator[Partition]:
    """The partitions in the output of ``sinfo -h -o PARTITION_FORMAT``, which has a line for each kind of nodes."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        columns = line.strip().split("|")
        if len(columns) != 5 or not columns[3].isdigit():
            continue
        name = columns[0].rstrip("*")
        old = found.get(name) or Partition(name, columns[1], columns[2], 0, (), columns[0].endswith("*"))
        found[name] = replace(old, nodes=old.nodes + int(columns[3]), gres=(*old.gres, columns[4]))
    yield from found.values()


def gpu_counts(gres: tuple[str, ...]) -> dict[str, int]:
    """The most GPUs of a node by type; the type is empty if they have none.

    >>> gpu_counts(("gpu:a100:8(S:0-1),nvme:1", "gpu:2", "(null)"))
    {'a100': 8, '': 2}
    """
    counts: dict[str, int] = {}
    for resources in gres:
        for one in re.sub(r"\([^)]*\)", "", resources).split(","):
            name, *rest = one.split(":")
            if name == "gpu" and rest and rest[-1].isdigit():
                kind = ":".join(rest[:-1])
                counts[kind] = max(counts.get(kind, 0), int(rest[-1]))
    return counts


def parse_configuration(text: str) -> dict[str, str]:
    """The settings in the output of ``scontrol show config``."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def seconds_of(limit: str) -> int | None:
    """A time limit as ``sinfo`` prints it, in seconds; None for none.

    >>> seconds_of("1-02:00:00"), seconds_of("30:00"), seconds_of("infinite")
    (93600, 1800, None)
    """
    try:
        return limit_seconds(limit)
    except InvalidJob:
        return None


CALL_SECONDS = 20.0
LimitOf = Callable[[str, str], "tuple[int, str] | None"]
"""See `limit_of_cluster`, for the shell of one cluster."""


def limit_warnings(job: TrainingJob, options: SlurmOptions, limit_of: LimitOf) -> list[str]:
    """A warning of a time limit that is short against the notice, the grace and the end of the job."""
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


def limit_of_cluster(shell: Shell, names: str, qos: str) -> tuple[int, str] | None:
    """The seconds of the limit of a job that sets none, and whose it is; None if it is unknown or none.

    Args:
        names: of its partitions; empty for the default one.
        qos: its name; empty for none.
    """
    given = f" --partition={shlex.quote(names)}" if names else ""
    more = f"; sacctmgr -nP show qos {shlex.quote(qos)} format=Name,MaxWall" if qos else ""
    command = f"{CLEAN} sinfo --noheader --format='P|%P|%L|%l'{given} | sort -u{more}"
    try:
        lines = shell.run(command, timeout=CALL_SECONDS).text.splitlines()
    except PlatformError:
        return None
    limits = []
    for line in lines:
        kind, *columns = line.split("|")
        if kind == "P" and len(columns) == 3 and (names or columns[0].endswith("*")):
            seconds = seconds_of(columns[1]) or seconds_of(columns[2])  # the default, else the longest
            if seconds:
                limits.append((seconds, f"partition {columns[0].rstrip('*')}"))
        elif qos and kind == qos and columns and (seconds := seconds_of(columns[0])):
            limits.append((seconds, f"QOS {kind}"))
    return min(limits, default=None)
