"""Reads the kernel's counters of this machine, or of its control group. Linux only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain.runtime.sampling.connections import Connections, sockets_of
from cloudtrain.runtime.sampling.idleness import Usage

SECTOR = 512
"""The bytes of a sector in /proc/diskstats, for every disk."""
NOT_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr")
"""Prefixes of block devices that are not disks, or whose bytes are also counted for other devices."""
MOST_PROCESSES = 200
"""The most processes of one rank that are read."""

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclass(frozen=True)
class Group:
    """The files of a control group. ``folder`` is the folder of its memory controller."""

    folder: Path
    current: str
    peak: str
    cache: str
    """The name of the line in ``memory.stat`` with the caches that the kernel can free."""
    limit: int


@dataclass
class Machine:
    """The counters of the machine, and of this process's control group if there is one.

    Args:
        processes: the folder of the proc file system.
        groups: the folder below which control groups are mounted (cgroups(7)).
    """

    processes: Path = Path("/proc")
    groups: Path = Path("/sys/fs/cgroup")
    blocks: Path = Path("/sys/block")
    group: Group | None = field(init=False)
    """The group with the lowest memory limit, among this process's group and those above it."""
    total: int | None = field(init=False)
    """The machine's bytes of memory."""

    def __post_init__(self) -> None:
        self.total = self._meminfo().get("MemTotal")
        limited = [group for group in self._memory_groups() if group.limit < (self.total or 1 << 62)]
        self.group = min(limited, key=lambda group: group.limit, default=None)
        self._limited = limited
        self._cpu = next(self._cpu_files(), None)
        self._disks = {name for name in _listed(self.blocks) if not name.startswith(NOT_DISKS)}

    def memory(self) -> int | None:
        """The bytes in use, except caches that the kernel can free."""
        return self._memory(self.group)

    def free_memory(self) -> list[tuple[int, int]]:
        """The free and the total bytes of the machine and of each control group with a limit.

        A Slurm job's outer group has the same limit as its step's group, and includes memory left by earlier steps.
        """
        limits = [(None, self.total), *((group, group.limit) for group in self._limited)]
        found = [(self._memory(group), limit) for group, limit in limits]
        return [(limit - used, limit) for used, limit in found if used is not None and limit is not None]

    def _memory(self, group: Group | None) -> int | None:
        if group is None:
            found = self._meminfo()
            available = found.get("MemAvailable")
            return None if self.total is None or available is None else self.total - available
        current = _number(group.folder / group.current)
        caches = _values(_text(group.folder / "memory.stat")).get(group.cache, 0)
        return None if current is None else max(current - caches, 0)

    @property
    def memory_limit(self) -> int | None:
        return self.group.limit if self.group else self.total

    def memory_peak(self) -> int | None:
        """The most bytes that the group has used, including caches; None without a group."""
        return _number(self.group.folder / self.group.peak) if self.group else None

    def cpu_seconds(self) -> float | None:
        """The processor seconds that this process's group has used."""
        if self._cpu is None:
            return None
        if self._cpu.name == "cpu.stat":
            used = _values(_text(self._cpu)).get("usage_usec")
            return None if used is None else used / 1e6
        nanoseconds = _number(self._cpu)
        return None if nanoseconds is None else nanoseconds / 1e9

    def disk_bytes(self) -> tuple[int, int] | None:
        """The bytes that the disks have read and written."""
        found = [line.split() for line in _text(self.processes / "diskstats").splitlines()]
        disks = [line for line in found if len(line) > 9 and line[2] in self._disks]
        with contextlib.suppress(ValueError):
            if disks:
                return sum(int(line[5]) for line in disks) * SECTOR, sum(
                    int(line[9]) for line in disks
                ) * SECTOR
        return None

    def network_bytes(self) -> tuple[int, int] | None:
        """The bytes that the network interfaces have received and sent."""
        lines = [line.partition(":") for line in _text(self.processes / "self/net/dev").splitlines()]
        found = [rest.split() for name, colon, rest in lines if colon and name.strip() != "lo"]
        with contextlib.suppress(ValueError, IndexError):
            if lines:
                return sum(int(line[0]) for line in found), sum(int(line[8]) for line in found)
        return None

    def memory_of(self, pid: int) -> int | None:
        """The bytes of a process, and the unshared bytes of its descendants; None if there is no such process."""
        sizes = _text(self.processes / f"{pid}/statm").split()
        if len(sizes) < 3:
            return None
        size = int(sizes[1])
        found = self._children(pid)
        for child in found:  # the list grows
            if len(found) < MOST_PROCESSES:
                found += self._children(child)
            sizes = _text(self.processes / f"{child}/statm").split()
            if len(sizes) >= 3:
                size += int(sizes[1]) - int(sizes[2])
        return size * _PAGE

    def usage_of(self, pid: int, connections: Connections | None = None) -> Usage | None:
        """The resources that a process and its descendants have used; None if there is no such process.

        Args:
            connections: the connections of this machine; None if they are unknown.
        """
        found = [pid]
        for one in found:  # the list grows
            if len(found) < MOST_PROCESSES:
                found += self._children(one, "*")
        cpu: dict[int, float] = {}
        # if the kernel does not list a process's children, their input and output are unknown
        lists = os.path.exists(self.processes / f"{pid}/task/{pid}/children")
        moved: dict[int, int] | None = {} if lists else None
        for one in found:
            fields = _text(self.processes / f"{one}/stat").rpartition(")")[2].split()
            if len(fields) < 15:
                continue
            cpu[one] = sum(map(int, fields[11:15])) / _TICKS  # includes children that have ended
            counts = _values(_text(self.processes / f"{one}/io").replace(":", ""))
            if moved is not None and "rchar" in counts:
                moved[one] = counts["rchar"] + counts["wchar"]
            elif one == pid:
                moved = None
        if pid not in cpu:
            return None
        sockets = [sockets_of(self.processes / str(one)) for one in cpu] if connections else [None]
        known = set().union(*(each for each in sockets if each is not None))
        used = None if connections is None or None in sockets else connections.of(known)
        return Usage(cpu, moved, self.memory_of(pid), used)

    def _children(self, pid: int, thread: int | str = "") -> list[int]:
        """The processes that a thread has started: the main thread by default, or all threads for ``*``."""
        files = sorted(self.processes.glob(f"{pid}/task/{thread or pid}/children"))
        return [int(child) for file in files for child in _text(file).split()]

    def _meminfo(self) -> dict[str, int]:
        lines = (line.replace(":", "").split() for line in _text(self.processes / "meminfo").splitlines())
        return {line[0]: int(line[1]) * 1024 for line in lines if len(line) > 1 and line[1].isdigit()}

    def _folders(self, controller: str) -> Iterator[tuple[bool, Path]]:
        """The folders of this process's group and of those above it, each with whether it is of cgroups version 2."""
        for line in _text(self.processes / "self/cgroup").splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if controllers and controller not in controllers.split(","):
                continue
            root = self.groups / controller if controllers else self.groups
            # in a container, the path may be that of the machine, while the group itself is mounted as the root
            parts = [part for part in path.split("/") if part]
            for depth in range(len(parts), -1, -1):
                yield not controllers, root.joinpath(*parts[:depth])

    def _memory_groups(self) -> Iterator[Group]:
        for is_second, folder in self._folders("memory"):
            limit = _number(folder / ("memory.max" if is_second else "memory.limit_in_bytes"))
            if limit is not None and is_second:
                yield Group(folder, "memory.current", "memory.peak", "inactive_file", limit)
            elif limit is not None:
                names = ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "total_inactive_file")
                yield Group(folder, *names, limit)

    def _cpu_files(self) -> Iterator[Path]:
        for is_second, folder in self._folders("cpuacct"):
            file = folder / ("cpu.stat" if is_second else "cpuacct.usage")
            if "usage_usec" in _values(_text(file)) if is_second else file.exists():
                yield file


def _listed(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def _text(path: Path) -> str:
    """The content of a small file; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 1 << 18).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _number(path: Path) -> int | None:
    """The number in a file; None for anything else, such as ``max``."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _values(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
