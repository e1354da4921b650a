"""Reads what ``sinfo`` and ``scontrol show config`` print, of Slurm 20.11 to 26.05."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.slurm.limits import limit_seconds

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
