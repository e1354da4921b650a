"""The hosts of a job as rows: equal hosts form a group, and those that differ come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from cloudtrain._display.view import JobView
from cloudtrain.contract.text import by_number
from cloudtrain.observe import GpuSample, Sample
from cloudtrain.observe.stacks import show_ranks

RECENT = 3
"""The number of samples of a host whose mean is its present use."""
LOW = 25.0
"""Percentage points: a GPU whose use is lower than the median by more than this counts as different."""
NEARLY_FULL = 0.95


@dataclass(frozen=True)
class Device:
    """A GPU or the processors of a host, or their mean over several equal hosts. None means not available."""

    name: str
    use: Sequence[tuple[float, float]]
    """Pairs of a time, in seconds since the epoch, and a percentage."""
    memory: Sequence[tuple[float, float]]
    """Pairs of a time and a number of bytes."""
    last_use: float | None = None
    """The use in the last sample, in percent; None if the driver has lost the GPU, even if earlier samples have it."""
    last_memory: float | None = None
    """The memory in the last sample, in bytes."""
    total: float | None = None
    """The capacity of the memory, in bytes."""
    facts: str = ""
    """Faults, temperature and power of a single device."""
    is_faulty: bool = False
    uses: tuple[float, ...] = ()
    """The last use of each of several devices."""

    @property
    def about(self) -> str:
        """More facts about the device; for several devices, their lowest and highest use."""
        if not self.uses or max(self.uses) - min(self.uses) < 1:
            return self.facts
        return f"{min(self.uses):.0f} to {max(self.uses):.0f}%"


@dataclass
class Host:
    """A host of a job as the screen shows it."""

    name: str
    state: str = ""
    message: str = ""
    done: int = 0
    total: int = 0
    ranks: list[int] = field(default_factory=list)
    failed: dict[int, int] = field(default_factory=dict)
    """Exit codes, by rank."""
    step: int | None = None
    samples: Sequence[Sample] = ()
    marks: tuple[str, ...] = ()
    """How it differs from other hosts."""
    faults: tuple[str, ...] = ()
    """The faults of its GPUs."""


@dataclass
class Group:
    """Hosts without relevant differences."""

    hosts: list[Host]

    @property
    def name(self) -> str:
        first, *others = [host.name for host in self.hosts]
        return f"{first} … {others[-1]} ({len(self.hosts):,})" if others else first

    @property
    def ranks(self) -> str:
        return show_ranks(rank for host in self.hosts for rank in host.ranks)

    @property
    def step(self) -> str:
        steps = [host.step for host in self.hosts if host.step is not None]
        return "" if not steps else f"{max(steps)}"

    @property
    def state(self) -> str:
        first = self.hosts[0]
        done, total = (sum(getattr(host, name) for host in self.hosts) for name in ("done", "total"))
        return f"{first.state} {done / total:.0%}" if total else first.state

    @property
    def facts(self) -> str:
        first = self.hosts[0]
        failed = [f"rank {rank}: exit {code}" for rank, code in sorted(first.failed.items())]
        faults = first.faults if len(self.hosts) > 1 else ()  # for one host, the row of the GPU has them
        return ", ".join([*first.marks, *faults, *failed, *([first.message] if first.message else [])])

    def devices(self) -> Iterator[Device]:
        """The processors, then the GPUs, as means over all hosts of the group."""
        sampled = [host for host in self.hosts if host.samples]
        if not sampled:
            return
        yield _mean([_cpu(host.samples) for host in sampled])
        for number in range(max(len(host.samples[-1].gpus) for host in sampled)):
            of_one = [_gpu(host.samples, number) for host in sampled if len(host.samples[-1].gpus) > number]
            yield _mean(of_one)


def hosts_of(view: JobView) -> list[Host]:
    """The hosts of the last attempt, by number, with how each of them differs."""
    found = {
        host.name: Host(host.name, host.state, host.message, host.done, host.total)
        for host in view.description.hosts
    }
    for name, samples in view.samples.items():
        found.setdefault(name, Host(name)).samples = samples
    if view.summary:
        for name, ranks in view.summary.course.hosts.items():
            host = found.setdefault(name, Host(name))
            host.ranks, host.step = ranks.ranks, ranks.step
            host.failed = {rank: code for rank, code in ranks.ended if code}
    hosts = sorted(found.values(), key=lambda host: by_number(host.name))
    usual = _usual_use(hosts)
    for host in hosts:
        host.marks = tuple(_marks(host, usual))
        gpus = host.samples[-1].gpus if host.samples else ()
        host.faults = tuple(dict.fromkeys(fault for gpu in gpus for fault in _faults(gpu)))
    return hosts


def grouped(hosts: Iterable[Host]) -> list[Group]:
    """Equal hosts as groups, the smallest groups first."""
    groups: dict[object, Group] = {}
    for host in hosts:
        groups.setdefault(_likeness(host), Group([])).hosts.append(host)
    return sorted(
        groups.values(),
        key=lambda group: (len(group.hosts), not group.hosts[0].failed, by_number(group.hosts[0].name)),
    )


def merged(devices: Sequence[Device]) -> list[Device]:
    """The processors and the GPUs that differ from most, then all other GPUs as one device."""
    uses = [device.last_use for device in devices[1:] if device.last_use is not None]
    usual = median(uses) if uses else 0.0
    alike = [
        device
        for device in devices[1:]
        if not device.is_faulty and device.last_use is not None and device.last_use >= usual - LOW
    ]
    if len(alike) < 2:
        return [*devices]
    numbers = show_ranks(int(device.name.rpartition(" ")[2]) for device in alike)
    together = replace(_mean(alike), name=f"GPU {numbers}")
    return [*(device for device in devices if device not in alike), together]


def _likeness(host: Host) -> object:
    """The key by which hosts are grouped. It does not include the node that a host runs on."""
    message = [part for part in host.message.split(", ") if not part.startswith("on node ")]
    gpus = len(host.samples[-1].gpus) if host.samples else None
    return host.state, (*message,), len(host.ranks), (*host.failed.values(),), host.marks, host.faults, gpus


def _usual_use(hosts: Sequence[Host]) -> float | None:
    uses = [use for host in hosts for use in uses_of(host)]
    return median(uses) if uses else None


def uses_of(host: Host) -> Iterator[float]:
    """The use of each GPU in the last samples, in percent, if it is known."""
    recent = host.samples[-RECENT:]
    for number in range(len(recent[-1].gpus) if recent else 0):
        found = [sample.gpus[number].use for sample in recent if len(sample.gpus) > number]
        known = [use for use in found if use is not None]
        if known and found[-1] is not None:
            yield sum(known) / len(known)


def _marks(host: Host, usual: float | None) -> Iterator[str]:
    if not host.samples:
        return
    last = host.samples[-1]
    if usual is not None and any(use < usual - LOW for use in uses_of(host)):
        yield "low use"
    if last.memory and last.memory_limit and last.memory > NEARLY_FULL * last.memory_limit:
        yield "memory nearly full"


def _faults(gpu: GpuSample) -> Iterator[str]:
    if gpu.throttling:
        yield f"throttled: {gpu.throttling}"
    if gpu.xid:
        yield f"Xid {gpu.xid:g}"
    if gpu.ecc:
        yield "memory errors"
    if gpu.stale:
        yield "the driver does not answer"


def _cpu(samples: Sequence[Sample]) -> Device:
    last = samples[-1]
    return Device(
        f"{last.cpus:g} CPUs" if last.cpus else "CPU",
        [(one.time, 100 * one.cpu / one.cpus) for one in samples if one.cpu is not None and one.cpus],
        [(one.time, one.memory) for one in samples if one.memory is not None],
        100 * last.cpu / last.cpus if last.cpu is not None and last.cpus else None,
        last.memory,
        last.memory_limit,
    )


def _gpu(samples: Sequence[Sample], number: int) -> Device:
    found = [(one.time, one.gpus[number]) for one in samples if len(one.gpus) > number]
    last = found[-1][1]
    facts = [] if last.temperature is None else [f"{last.temperature:.0f} °C"]
    if last.power is not None:
        facts.append(f"{last.power:.0f} W")
    return Device(
        f"GPU {number}",
        [(time, gpu.use) for time, gpu in found if gpu.use is not None],
        [(time, gpu.memory) for time, gpu in found if gpu.memory is not None],
        last.use,
        last.memory,
        last.memory_total,
        ", ".join([*_faults(last), *facts]),
        any(_faults(last)),
    )


def _mean(devices: Sequence[Device]) -> Device:
    """The mean of the same device on several hosts. Samples are matched from the last one backwards, because
    their times are nearly equal."""
    first = devices[0]
    if len(devices) == 1:
        return first
    common = Counter(device.total for device in devices).most_common(1)[0][0]
    uses = [device.uses or (device.last_use,) for device in devices]
    return Device(
        first.name,
        _mean_points([device.use for device in devices]),
        _mean_points([device.memory for device in devices]),
        _mean_of(device.last_use for device in devices),
        _mean_of(device.last_memory for device in devices),
        common,
        is_faulty=any(device.is_faulty for device in devices),
        uses=tuple(use for found in uses for use in found if use is not None),
    )


def _mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mean_points(rows: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    found = []
    for back in range(max(map(len, rows)), 0, -1):
        points = [row[-back] for row in rows if len(row) >= back]
        times, values = zip(*points, strict=True)
        found.append((max(times), sum(values) / len(values)))
    return found
