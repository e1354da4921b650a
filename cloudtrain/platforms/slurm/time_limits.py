"""Time limits of submissions, partitions and QOS, and the other facts about partitions that ``sinfo`` prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.slurm.squeue import CLEAN

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


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
    """The largest number of GPUs of a node, by type, which is empty for GPUs without a type.

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


def limit_of_cluster(shell: Shell, names: str, qos: str) -> tuple[int, str] | None:
    """The limit, in seconds, of a job that sets none, and its origin; None if there is none, or it is unknown.

    Args:
        names: the names of its partitions; empty for the default one.
        qos: the name of its QOS; empty for none.
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
