"""Counts what the out-of-memory killer of Linux ended, in this process's control group (cgroups(7)).

In a container, the group is usually the root of a namespace. Under a scheduler, in a systemd service or a login
session, it is below the root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path


def memory_kill_count(processes: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The number of processes that the out-of-memory killer has ended in this group; 0 if unknown.

    On a machine without groups for memory, processes of the whole machine count.

    Args:
        processes: the folder of the proc file system.
        groups: the folder below which the groups are mounted.
    """
    for file in (*_files(processes / "self" / "cgroup", groups), processes / "vmstat"):
        try:
            match = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
        except OSError:
            continue
        if match:
            return int(match[1])
    return 0


def _files(membership: Path, groups: Path) -> Iterator[Path]:
    """The files with the count, of the group itself and then of what is mounted as the root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):  # version 1
            folder, name = groups / "memory", "memory.oom_control"
        elif not controllers:  # version 2
            folder, name = groups, "memory.events"
        else:
            continue
        yield folder / path.lstrip("/") / name
        yield folder / name
