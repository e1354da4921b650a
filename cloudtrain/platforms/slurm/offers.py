"""The partitions of a cluster that have GPUs, and how many of their nodes are idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.base import HostOffer
from cloudtrain.platforms.batch.shell import Shell
from cloudtrain.platforms.slurm.time_limits import gpu_counts

FORMAT = "%P|%a|%t|%D|%G"
"""Partition, with * if it is the default; up or down; state of the nodes; their number; generic resources."""
AWAY = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "boot", "futr", "plnd")
"""Prefixes of the states in which nodes accept no jobs."""


def partition_offers(shell: Shell, profile: str = "") -> list[HostOffer]:
    """The nodes of each partition with GPUs. Raises PlatformError if ``sinfo`` does not answer."""
    answer = shell.run(f"LC_ALL=C sinfo -h -o '{FORMAT}'")
    if answer.code:
        reason = answer.complaint.splitlines()[-1:] or [f"exit code {answer.code}"]
        raise PlatformError(f"sinfo fails: {reason[0]}")
    return [*parse_offers(answer.text, profile)]


def parse_offers(text: str, profile: str = "") -> Iterator[HostOffer]:
    """The offers in the output of ``sinfo -h -o FORMAT``, which has a line for each state and kind of nodes."""
    found: dict[tuple[str, str, int], HostOffer] = {}
    for line in text.splitlines():
        columns = line.strip().split("|")
        if len(columns) != 5 or not columns[3].isdigit() or columns[1] != "up":
            continue
        name, state, count = columns[0].rstrip("*"), columns[2], int(columns[3])
        if state.startswith(AWAY) or state.endswith("*"):  # * marks nodes that do not respond
            continue
        for gpu, gpus in gpu_counts((columns[4],)).items():
            old = found.get((name, gpu, gpus)) or HostOffer(name, "", gpu, gpus, 0, 0, profile)
            idle = count * gpus if state.startswith("idle") else 0
            found[name, gpu, gpus] = replace(
                old, hosts=(old.hosts or 0) + count, free_gpus=(old.free_gpus or 0) + idle
            )
    yield from found.values()
