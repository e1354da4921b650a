"""Since when the ranks of a host have done nothing: a part of how `cloudtrain.runtime.diagnose.silence` finds hangs.

Data in, data out: the clock is an argument. A sign of life that cannot be read counts as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

READINGS = 10
"""Readings, at least, in the time after which a job hangs."""
SHORTEST_PAUSE = 1.0
"""Seconds between two readings, at least."""
PAUSED_SECONDS = 3.0
"""A reading that is late by more than this, and than a pause: this host did not run, and all ranks get fresh time."""
CPU_SHARE, GPU_SHARE = 0.05, 5.0
"""The use of one processor, and of a GPU in percent, from which on a rank computes."""
MEMORY_BYTES = 1 << 20
MOVED_RATE = 10_000.0
"""Bytes per second that a process reads or writes."""
NETWORK_RATE = 100_000.0
"""The same on the network interfaces of a host: connections are kept alive with less."""


def pause(limit: float) -> float:
    """Seconds between two readings."""
    return max(limit / READINGS, SHORTEST_PAUSE)


class Usage(NamedTuple):
    """The resources that a rank, and the processes below it, have used so far."""

    cpu: Mapping[int, float]
    """Seconds of processors, by process ID."""
    moved: Mapping[int, int] | None
    """Bytes that each process has read and written; None if the system does not say."""
    memory: int | None


GpuUsage = tuple[Optional[float], Optional[float]]
"""Use in percent, and bytes of memory. None: unknown."""


class HostUsage(NamedTuple):
    """The resources of a host at one moment. None: unknown."""

    ranks: Mapping[int, Usage | None]
    network: float | None
    """Bytes that have been received and sent."""
    gpus: Mapping[int, GpuUsage] | None
    """The GPU of each rank; if they share GPUs, all of them. Empty: there is none."""


class IdleMeter:
    """Since when each rank of a host has done nothing.

    Args:
        limit: see `Settings.hang_after`.
    """

    def __init__(self, limit: float) -> None:
        self._pause = pause(limit)
        self._read_at: float | None = None
        self._before: HostUsage | None = None
        self._since: dict[int, float] = {}

    def add(self, now: float, usage: HostUsage) -> None:
        """Add a reading, at ``now`` in seconds on a monotonic clock."""
        before, elapsed = self._before, now - (self._read_at or now)
        is_late = elapsed > 2 * self._pause + PAUSED_SECONDS
        is_used = before is None or not elapsed or is_late or _host_is_used(before, usage, elapsed)
        for rank, used in usage.ranks.items():
            if before is None or is_used or _is_active(rank, before, usage, used, elapsed):
                self._since[rank] = now
        self._since = {rank: since for rank, since in self._since.items() if rank in usage.ranks}
        self._before, self._read_at = usage, now

    def idle(self) -> dict[int, float]:
        """Seconds without a sign of life up to the last reading, by rank."""
        read_at = self._read_at or 0.0
        return {rank: read_at - since for rank, since in [*self._since.items()]}


def _host_is_used(before: HostUsage, now: HostUsage, seconds: float) -> bool:
    if before.network is None or now.network is None:
        return True
    return abs(now.network - before.network) > NETWORK_RATE * seconds


def _is_active(rank: int, before: HostUsage, now: HostUsage, used: Usage | None, seconds: float) -> bool:
    """Whether a rank has done anything since the reading ``before``; also if that is unknown."""
    old = before.ranks.get(rank)
    if used is None or old is None or used.moved is None or old.moved is None or now.gpus is None:
        return True
    if used.memory is None or old.memory is None or abs(used.memory - old.memory) >= MEMORY_BYTES:
        return True
    if (
        _growth(old.cpu, used.cpu) > CPU_SHARE * seconds
        or _growth(old.moved, used.moved) > MOVED_RATE * seconds
    ):
        return True
    use, memory = now.gpus.get(rank, (0.0, 0.0))
    return (
        use is None
        or memory is None
        or use > GPU_SHARE
        or memory != (before.gpus or {}).get(rank, (0, 0.0))[1]
    )


def _growth(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    return sum(max(value - before.get(process, 0), 0) for process, value in now.items())
