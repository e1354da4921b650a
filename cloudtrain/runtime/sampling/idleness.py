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
"""The same on the network connections of a rank: they are kept alive with less."""
UNKNOWN, PAUSED = "could not be looked at", "was paused with its host"
NETWORK, HOST_NETWORK = "used the network", "runs on a host whose network was used, perhaps by other programs"
PROCESSOR, FILES, MEMORY = "used a processor", "read or wrote files", "has more or less memory"
GPU, GPU_MEMORY = "used its GPU", "has more or less memory on its GPU"
"""Predicates of a rank that shows a sign of life."""
BY_ANSWERS = (PROCESSOR, FILES, MEMORY)
"""Those that a rank shows while it answers a query of the runtime."""
ANSWER_SECONDS = 10.0
"""Seconds that its answer may take on a busy machine."""


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
    connections: Mapping[int, int] | None = None
    """Bytes that each connection has sent and received; None: unknown, and those of the host count."""


GpuUsage = tuple[Optional[float], Optional[float]]
"""Use in percent, and bytes of memory. None: unknown."""


class HostUsage(NamedTuple):
    """The resources of a host at one moment. None: unknown."""

    ranks: Mapping[int, Usage | None]
    network: float | None
    """Bytes that its interfaces have received and sent, for all programs."""
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
        self._queried_at: float | None = None
        self._since: dict[int, float] = {}
        self.signs: dict[int, str] = {}
        """The last sign of life of each rank."""

    def query(self, now: float) -> None:
        """The runtime queries the ranks now: what they use to answer does not count as a sign of life."""
        self._queried_at = now

    def add(self, now: float, usage: HostUsage) -> None:
        """Add a reading, at ``now`` in seconds on a monotonic clock."""
        before, elapsed = self._before, now - (self._read_at or now)
        is_late = elapsed > 2 * self._pause + PAUSED_SECONDS
        answers = self._queried_at is not None and now - elapsed < self._queried_at + ANSWER_SECONDS
        for rank, used in usage.ranks.items():
            if before is None or not elapsed:
                sign = UNKNOWN
            else:
                sign = PAUSED if is_late else _sign(rank, before, usage, used, elapsed)
            if sign and not (answers and sign in BY_ANSWERS):
                self._since[rank], self.signs[rank] = now, sign
        self._since = {rank: since for rank, since in self._since.items() if rank in usage.ranks}
        self._before, self._read_at = usage, now

    def idle(self) -> dict[int, float]:
        """Seconds without a sign of life up to the last reading, by rank."""
        read_at = self._read_at or 0.0
        return {rank: read_at - since for rank, since in [*self._since.items()]}


def _sign(rank: int, before: HostUsage, now: HostUsage, used: Usage | None, seconds: float) -> str:
    """The sign of life of a rank since the reading ``before``; empty: none. Unknown counts as one."""
    old = before.ranks.get(rank)
    if used is None or old is None or used.moved is None or old.moved is None or now.gpus is None:
        return UNKNOWN
    if used.memory is None or old.memory is None:
        return UNKNOWN
    if _growth(old.cpu, used.cpu) > CPU_SHARE * seconds:
        return PROCESSOR
    if _growth(old.moved, used.moved) > MOVED_RATE * seconds:
        return FILES
    if abs(used.memory - old.memory) >= MEMORY_BYTES:
        return MEMORY
    use, memory = now.gpus.get(rank, (0.0, 0.0))
    if use is None or memory is None:
        return UNKNOWN
    if use > GPU_SHARE:
        return GPU
    if memory != (before.gpus or {}).get(rank, (0, 0.0))[1]:
        return GPU_MEMORY
    return _network_sign(before, now, old, used, seconds)


def _network_sign(before: HostUsage, now: HostUsage, old: Usage, used: Usage, seconds: float) -> str:
    if old.connections is not None and used.connections is not None:
        return NETWORK if _growth(old.connections, used.connections) > NETWORK_RATE * seconds else ""
    if before.network is None or now.network is None:
        return UNKNOWN
    return HOST_NETWORK if abs(now.network - before.network) > NETWORK_RATE * seconds else ""


def _growth(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    return sum(max(value - before.get(key, 0), 0) for key, value in now.items())
