"""Measures how long the ranks of a host have done nothing, for `cloudtrain.runtime.diagnose.silence` to find hangs.

The functions do no input or output, and take the time as an argument. A usage that cannot be read counts as a sign of
life.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

READINGS = 10
"""The least number of readings in the time after which a job counts as hanging."""
SHORTEST_PAUSE = 1.0
"""The least seconds between two readings."""
PAUSED_SECONDS = 3.0
"""If a reading is late by more than this and a pause, the host did not run, and the time of all ranks starts over."""
CPU_SHARE, GPU_SHARE = 0.05, 5.0
"""The least use of a processor (as a share), and of a GPU (in percent), that shows that a rank computes."""
MEMORY_BYTES = 1 << 20
MOVED_RATE = 10_000.0
"""The bytes per second that a rank has to read or write to show a sign of life."""
NETWORK_RATE = 100_000.0
"""The same for network connections. It is higher because connections are kept alive by small messages."""
UNKNOWN, PAUSED = "could not be looked at", "was paused with its host"
NETWORK, HOST_NETWORK = "used the network", "runs on a host whose network was used, perhaps by other programs"
PROCESSOR, FILES, MEMORY = "used a processor", "read or wrote files", "has more or less memory"
GPU, GPU_MEMORY = "used its GPU", "has more or less memory on its GPU"
"""Signs of life, as predicates of a rank in messages."""
BY_ANSWERS = (PROCESSOR, FILES, MEMORY)
"""The signs that a rank also shows while it responds to a query of the runtime."""
ANSWER_SECONDS = 25.0
"""How long the response may take: longer than `stack_collector.SILENT_SECONDS`."""


def pause(limit: float) -> float:
    """Seconds between two readings."""
    return max(limit / READINGS, SHORTEST_PAUSE)


class Usage(NamedTuple):
    """The resources that a rank, and the processes below it, have used so far."""

    cpu: Mapping[int, float]
    """The processor seconds, by process ID."""
    moved: Mapping[int, int] | None
    """The bytes that each process has read and written; None if the system does not provide them."""
    memory: int | None
    connections: Mapping[int, int] | None = None
    """The bytes that each connection has sent and received. If they are unknown (None), those of the host count."""


GpuUsage = tuple[Optional[float], Optional[float]]
"""The use in percent, and the bytes of memory; None for unknown values."""


class HostUsage(NamedTuple):
    """The resources that a host has used up to one moment; None for unknown values."""

    ranks: Mapping[int, Usage | None]
    network: float | None
    """The bytes that its interfaces have received and sent, for all programs."""
    gpus: Mapping[int, GpuUsage] | None
    """The usage of each rank's GPU, or of all GPUs if ranks share them; empty without GPUs."""


class IdleMeter:
    """Measures how long each rank of a host has done nothing.

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
        """Record a query of the ranks by the runtime. Work that may be the response is neither a sign nor idle time."""
        self._queried_at = now

    def add(self, now: float, usage: HostUsage) -> None:
        """Add a reading, at ``now`` in seconds on a monotonic clock."""
        before, elapsed = self._before, now - (self._read_at or now)
        is_late = elapsed > 2 * self._pause + PAUSED_SECONDS
        answers = self._queried_at is not None and now - elapsed < self._queried_at + ANSWER_SECONDS
        for rank, used in usage.ranks.items():
            if before is None or not elapsed:
                signs = [UNKNOWN]
            else:
                signs = [PAUSED] if is_late else [*_signs(rank, before, usage, used, elapsed)]
            certain = [sign for sign in signs if not (answers and sign in BY_ANSWERS)]
            if certain:
                self._since[rank], self.signs[rank] = now, certain[0]
            elif signs and rank in self._since:
                self._since[rank] += elapsed  # frequent queries make no rank idle that works
        self._since = {rank: since for rank, since in self._since.items() if rank in usage.ranks}
        self._before, self._read_at = usage, now

    def idle(self) -> dict[int, float]:
        """Seconds without a sign of life up to the last reading, by rank."""
        read_at = self._read_at or 0.0
        return {rank: read_at - since for rank, since in [*self._since.items()]}


def _signs(rank: int, before: HostUsage, now: HostUsage, used: Usage | None, seconds: float) -> Iterator[str]:
    """The signs of life of a rank since the reading ``before``. Unknown values count as one."""
    old = before.ranks.get(rank)
    if used is None or old is None or used.moved is None or old.moved is None or now.gpus is None:
        yield UNKNOWN
        return
    if used.memory is None or old.memory is None:
        yield UNKNOWN
        return
    if _growth(old.cpu, used.cpu) > CPU_SHARE * seconds:
        yield PROCESSOR
    if _growth(old.moved, used.moved) > MOVED_RATE * seconds:
        yield FILES
    if abs(used.memory - old.memory) >= MEMORY_BYTES:
        yield MEMORY
    use, memory = now.gpus.get(rank, (0.0, 0.0))
    if use is None or memory is None:
        yield UNKNOWN
        return
    if use > GPU_SHARE:
        yield GPU
    if memory != (before.gpus or {}).get(rank, (0, 0.0))[1]:
        yield GPU_MEMORY
    if sign := _network_sign(before, now, old, used, seconds):
        yield sign


def _network_sign(before: HostUsage, now: HostUsage, old: Usage, used: Usage, seconds: float) -> str:
    if old.connections is not None and used.connections is not None:
        return NETWORK if _growth(old.connections, used.connections) > NETWORK_RATE * seconds else ""
    if before.network is None or now.network is None:
        return UNKNOWN
    return HOST_NETWORK if abs(now.network - before.network) > NETWORK_RATE * seconds else ""


def _growth(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    return sum(max(value - before.get(key, 0), 0) for key, value in now.items())
