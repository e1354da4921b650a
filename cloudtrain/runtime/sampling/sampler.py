"""Samples this host in a thread, and records the samples as events: see docs/guides/watch.md."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Callable

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureClass, FailureReport, RankSlot, cpu_count, gpu_count
from cloudtrain.observe import EventLog
from cloudtrain.observe.events import to_line
from cloudtrain.observe.heartbeat import read_data
from cloudtrain.runtime.run_folder import RankRecord, heartbeat_path
from cloudtrain.runtime.sampling import xids
from cloudtrain.runtime.sampling.connections import read_connections
from cloudtrain.runtime.sampling.idleness import GpuUsage, HostUsage, IdleMeter, pause

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.runtime.host_config import HostConfig
    from cloudtrain.runtime.sampling.background import Background
    from cloudtrain.runtime.sampling.last_minute import Moment
    from cloudtrain.runtime.sampling.machine import Machine
    from cloudtrain.runtime.sampling.nvml import Reading

Wait = tuple[float, float, float]
"""See `note_data`."""

SECONDS = 10.0
"""The time between two readings."""
MEMORY_SECONDS = 1.0
"""The time between two readings of the memory, which a process can fill in seconds."""
SHARE, DEVICES_SHARE = 0.003, 0.001
"""The share of a processor for this thread, and for each thread that reads devices. A thread over it pauses longer."""
KEPT_SECONDS = 60.0
FULL_RATE_SECONDS = 300.0
"""The time for which every reading is recorded; after that, there is one sample a minute."""
RARE_SECONDS = 60.0
MOST_HOSTS = 256
"""With more hosts, each one records less often, so that the number of samples is that of this number of hosts."""
OTHER_DEVICES = ("/dev/kfd", "/dev/neuron0", "/dev/accel0", "/dev/accel/accel0")
"""Devices of accelerators whose use is not read: AMD, AWS Neuron, TPUs and others."""
NEARLY_FULL, NEWS = 0.8, 0.01
"""Shares of the memory limit. Above the first, a reading is recorded if it exceeds all earlier ones by the second."""
MOST_FAULTS = 1000
FAULTS_SECONDS = 2.0
"""The time for which the diagnosis of a failed rank waits for the driver."""
CLOSE_SECONDS = 5.0
LEAST_SECONDS = 0.5
"""The least time that the last sample, at the end of the job, covers."""


@dataclass
class _Recorded:
    """The state of the record of samples."""

    at: float
    highest: float = 0.0
    """The most bytes of memory in a recorded reading."""
    waiting: list[dict[str, Any]] = field(default_factory=list)
    """The readings since ``at``."""


class Sampler:
    """Samples this host until `close`. A driver or a disk that hangs does not delay other readings.

    Sampling begins after a second, when the ranks have been started.

    Args:
        folder: the job's folder, whose disk may become full.
        hosts: the number of the job's hosts.
    """

    def __init__(
        self,
        events: EventLog,
        folder: Path,
        hosts: int,
        environ: Mapping[str, str],
        *,
        seconds: float = SECONDS,
        is_on: bool = True,
        hang_after: float = 0.0,
    ) -> None:
        self._events = events
        self._environ = environ
        self._seconds = seconds
        crowd = max(1.0, hosts / MOST_HOSTS)
        self._full_seconds, self._rare_seconds = crowd * seconds, crowd * RARE_SECONDS
        self._folder = folder
        self._run_folder = ""
        self._slots: Sequence[RankSlot] = ()
        self._pids: dict[int, int] = {}
        """The process ID of each rank."""
        self._meter = IdleMeter(hang_after) if hang_after else None
        self._moments: deque[Moment] = deque(maxlen=int(KEPT_SECONDS / MEMORY_SECONDS))
        self._machine: Machine | None = None
        self._gpus: Reading | None = None
        self._nvml: Background[Reading] | None = None
        self._faults: dict[tuple[str, int], None] = {}
        """The GPU and the number of each fault that the driver has reported."""
        self._new_faults: deque[tuple[str, int]] = deque(maxlen=MOST_FAULTS)
        """The faults that are not in a sample yet."""
        self._hangs = False
        """Whether the driver did not respond in time."""
        self._warned: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="samples", daemon=True)
        if is_on:
            self._thread.start()

    @classmethod
    def of(cls, config: HostConfig, environ: Mapping[str, str], events: EventLog) -> Sampler:
        """The sampler of a host, which does nothing if the job turns sampling off."""
        folder, hosts, settings = config.paths.base, config.host.count, config.settings
        limit = settings.hang_after
        seconds = min(SECONDS, pause(limit)) if limit else SECONDS
        return cls(events, folder, hosts, environ, seconds=seconds, is_on=settings.samples, hang_after=limit)

    def watch(self, run_folder: str, slots: Sequence[RankSlot]) -> None:
        """Sample these ranks too from now on."""
        self._run_folder, self._slots = run_folder, slots

    def query(self) -> None:
        """Record a query of this host's ranks by the runtime: see `IdleMeter.query`."""
        if self._meter:
            self._meter.query(time.monotonic())

    def idle(self) -> dict[int, float]:
        """Seconds for which each rank of this host has done nothing; empty if nothing is sampled."""
        return self._meter.idle() if self._meter and self._thread.is_alive() else {}

    def signs(self) -> dict[int, str]:
        """The last sign of life of each rank: see `IdleMeter.signs`."""
        return dict(self._meter.signs) if self._meter else {}

    def close(self) -> None:
        """Record the last sample. Waits for `CLOSE_SECONDS` at most, because the disk may hang."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def gpu_faults(self) -> list[tuple[str, int]]:
        """The faults of this host's GPUs so far, by GPU and number. Waits only once for a driver that hangs."""
        if self._nvml and not self._hangs:
            found = self._nvml.get(urgent=FAULTS_SECONDS)
            self._hangs = not found or found[1] > 0
        return [*self._faults]

    def explain(self, report: FailureReport) -> FailureReport:
        """``report``, completed with the memory in the last minute if a rank ran out of memory."""
        is_out = report.failure_class == FailureClass.OUT_OF_MEMORY
        return replace(report, memory=self.last_minute(report.rank)) if is_out else report

    def last_minute(self, rank: int | None = None) -> str:
        """The use of memory in the last minute, as text, up to now or to the last moment in which ``rank`` had any."""
        from cloudtrain.runtime.sampling.last_minute import describe, until_end_of

        if not self._machine:
            return ""
        return describe(until_end_of(rank, [*self._moments]), self._machine, self._gpus)

    def _sample(self) -> None:
        pause = shortest = min(MEMORY_SECONDS, self._seconds)
        if self._ended.wait(pause):
            return
        from cloudtrain.runtime.sampling.background import Background
        from cloudtrain.runtime.sampling.last_minute import Moment
        from cloudtrain.runtime.sampling.machine import Machine

        machine = self._machine = Machine()
        gpus = self._nvml = Background("nvml", self._open_gpus, DEVICES_SHARE)
        disk: Background[int | None] = Background("disk-free", lambda: self._disk_free, DEVICES_SHARE)
        fixed = {"cpus": cpu_count(), "memory_limit": machine.memory_limit}
        began = read_at = time.monotonic()
        recorded, before, waited = _Recorded(began), _counters(machine), self._waits()
        ended = False
        while not ended:
            ended = self._ended.wait(pause)
            used, now = time.thread_time(), time.monotonic()
            self._moments.append(Moment(now, machine.memory(), {} if ended else self._rank_memory(machine)))
            elapsed = now - read_at
            if elapsed >= (LEAST_SECONDS if ended else self._seconds):
                counters, free, found = _counters(machine), disk.get(), gpus.get()
                if self._meter:
                    self._meter.add(now, self._usage(machine, counters, found))
                rates = {name: _rate(before[name], value, elapsed) for name, value in counters.items()}
                memory, waits = self._memory_since(read_at), self._waits()
                self._record(
                    recorded,
                    {
                        **rates,
                        **fixed,
                        **memory,
                        "rank_data": [
                            _share(waited.get(rank), waits.get(rank)) for rank in memory["ranks"] or ()
                        ],
                        **self._of_gpus(found),
                        "disk_free": free and free[0],
                    },
                    now,
                    is_due=now - began < FULL_RATE_SECONDS,
                    is_last=ended,
                )
                before, waited, read_at = counters, waits, now
            pause = max(shortest, (time.thread_time() - used) / SHARE)

    def _record(
        self, recorded: _Recorded, reading: dict[str, Any], now: float, *, is_due: bool, is_last: bool
    ) -> None:
        """Record the readings since the last record if a record is due or the last reading is important."""
        from cloudtrain.runtime.sampling.series import merge

        recorded.waiting.append(reading)
        memory, limit = reading["memory"] or 0, reading["memory_limit"] or 0
        is_filling = memory > NEARLY_FULL * limit and memory > recorded.highest + NEWS * limit
        since = now - recorded.at
        is_due = (is_due and since >= 0.9 * self._full_seconds) or is_last or since >= self._rare_seconds
        if is_due or is_filling or any(reading.get("gpu_xid") or ()):
            with contextlib.suppress(OSError):  # the file system fails; the job continues without samples
                event = self._events.record("sample", seconds=round(since, 3), **merge(recorded.waiting))
                self._events.append(to_line(event))
            recorded.at, recorded.highest, recorded.waiting = now, max(recorded.highest, memory), []

    def _memory_since(self, time: float) -> dict[str, Any]:
        """The most memory of the host and of each rank since ``time``."""
        found = [moment for moment in self._moments if moment.time > time]
        ranks: dict[int, int] = {}
        for moment in found:
            for rank, size in moment.ranks.items():
                ranks[rank] = max(size, ranks.get(rank, 0))
        memory = max((moment.memory for moment in found if moment.memory is not None), default=None)
        return {"memory": memory, "ranks": [*ranks] or None, "rank_memory": [*ranks.values()] or None}

    def _waits(self) -> dict[int, Wait]:
        """The last report of each rank about its waits for data."""
        found = {
            slot.rank: read_data(heartbeat_path(self._run_folder, slot.local_rank)) for slot in self._slots
        }
        return {rank: wait for rank, wait in found.items() if wait is not None}

    def _usage(
        self, machine: Machine, counters: Mapping[str, float | None], found: tuple[Reading, float] | None
    ) -> HostUsage:
        moved = [counters["network_in"], counters["network_out"]]
        network = None if None in moved else sum(filter(None, moved))
        connections = read_connections()
        ranks = {
            slot.rank: machine.usage_of(self._pids[slot.rank], connections)
            for slot in self._slots
            if slot.rank in self._pids
        }
        return HostUsage(ranks, network, self._gpus_of_ranks(found))

    def _gpus_of_ranks(self, found: tuple[Reading, float] | None) -> dict[int, GpuUsage] | None:
        """The GPU of each rank if there is one for each, or else all GPUs; None if a GPU cannot be read."""
        if found is None:
            is_unknown = any(map(os.path.exists, OTHER_DEVICES)) or gpu_count(self._environ)
            return None if is_unknown else {}
        reading, age = found
        if age:
            return None
        columns = (reading.columns.get("use", ()), reading.columns.get("memory", ()))
        each = list(zip(*columns))
        if len(each) == len(self._slots):
            return {slot.rank: each[slot.local_rank] for slot in self._slots}
        if any(None in one for one in each):
            return None
        every = (max((use for use, _ in each), default=0.0), sum(memory for _, memory in each))
        return {slot.rank: every for slot in self._slots}

    def _rank_memory(self, machine: Machine) -> dict[int, int]:
        found = {}
        for slot in self._slots:
            size = machine.memory_of(self._pids[slot.rank]) if slot.rank in self._pids else None
            if not size:
                with contextlib.suppress(OSError):
                    record = RankRecord.read(self._run_folder, slot.local_rank)
                    if record and record.exit_code is None:
                        self._pids[slot.rank] = record.pid
                        size = machine.memory_of(record.pid)
            if size:
                found[slot.rank] = size
        return found

    def _open_gpus(self) -> Callable[[], Reading] | None:
        from cloudtrain.runtime.sampling.nvml import Nvml, NvmlFailed

        try:
            nvml = Nvml(self._environ)
        except (OSError, NvmlFailed):
            return None

        def read() -> Reading:
            reading = nvml.read()
            for gpu, xid in zip(reading.ids, reading.columns.get("xid", ())):
                if xid:
                    self._faults[gpu, xid] = None
                    self._new_faults.append((gpu, xid))
            return reading

        return read

    def _of_gpus(self, found: tuple[Reading, float] | None) -> dict[str, Any]:
        if found is None or not found[0].ids:
            return {}
        reading, age = found
        self._gpus = reading
        for gpu in reading.lost:
            self._warn_once(f"the driver has lost {gpu} on {self._events.source}")
        values = {f"gpu_{name}": column for name, column in reading.columns.items()}
        faults = [self._new_faults.popleft() for _ in range(len(self._new_faults))]
        for gpu, number in faults:
            about = xids.of_hardware(number)
            if about:  # other faults are in the failure report if they end a rank
                self._warn_once(
                    f"the driver has reported Xid {number} of {gpu} on {self._events.source}: {about}"
                )
        last = dict(faults)
        values["gpu_xid"] = [last.get(gpu) for gpu in reading.ids]
        if age:
            values["gpu_stale"] = [round(age, 1)] * len(reading.ids)
        return {"gpu": reading.ids, **values}

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            with contextlib.suppress(OSError):
                self._events.emit("warning", message=message)

    def _disk_free(self) -> int | None:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize


def _counters(machine: Machine) -> dict[str, float | None]:
    disk, network = machine.disk_bytes() or (None, None), machine.network_bytes() or (None, None)
    return {
        "cpu": machine.cpu_seconds(),
        "disk_read": disk[0],
        "disk_write": disk[1],
        "network_in": network[0],
        "network_out": network[1],
    }


def _rate(before: float | None, after: float | None, seconds: float) -> float | None:
    """The increase per second; None if it is unknown, or a counter was reset."""
    return None if before is None or after is None or after < before else (after - before) / seconds


def _share(before: Wait | None, after: Wait | None) -> float | None:
    """The share of the time between two reports in which a rank waited; None if that is unknown."""
    if after is None:
        return None
    seconds, first, now = after
    earlier, since = (before[0], before[2]) if before else (0.0, first)
    share = (seconds - earlier) / (now - since) if now > since else math.nan
    return min(max(share, 0.0), 1.0) if math.isfinite(share) else None
