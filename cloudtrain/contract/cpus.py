"""The processors of this host: those that the process may run on, as far as its control group lets it use them."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path


def cpu_count(processes: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Processors that this process may use at the same time, at least 1.

    A container with a limit of 1.5 processors gets 2: the kernel would let more threads than that wait in turn.

    Args:
        processes: the folder of the proc file system.
        groups: the folder below which the control groups are mounted (cgroups(7)).
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(math.ceil(limit) for limit in _limits(processes, groups))]))


def _limits(processes: Path, groups: Path) -> Iterator[float]:
    """The limits of this process's control group, and of those above it."""
    try:
        lines = (processes / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):  # version 1
            root = groups / "cpu"
        elif not controllers:  # version 2
            root = groups
        else:
            continue
        # in a container, the path may be that of the machine, and the group itself the root
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
                yield _limit(root.joinpath(*parts[:depth]), is_first=bool(controllers))


def _limit(group: Path, *, is_first: bool) -> float:
    """The processors that one group may use. Raises OSError or ValueError if it has no limit."""
    if is_first:
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    else:
        quota, period = (group / "cpu.max").read_text().split()
    limit = int(quota) / int(period)  # "max" is not a number
    if limit <= 0:
        raise ValueError
    return limit
