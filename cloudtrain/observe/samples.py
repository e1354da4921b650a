"""Samples: the activity of a host and its GPUs in the last seconds. The runtime records them as events.

A sample is an event of the kind ``sample``: see docs/guides/watch.md. This module reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields
from typing import Any, Optional

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import Fields

Number = Optional[float]
"""None means not available, which is different from 0."""

MOST_HOSTS = 4096
"""The most hosts in `RecentSamples`."""
MOST_OF_A_HOST = 60
"""The most samples of one host there: about the last hour."""
MOST_IN_ALL = 8192
"""The most samples there, unless there are so many hosts that each has only `FEWEST`."""
FEWEST = 2

MOST_GPUS, MOST_RANKS, LONGEST_TEXT = 64, 1024, 100
"""The limits for one host, and for the characters of a text, beyond which a forged sample is not kept."""

_GPU_NUMBERS = ("use", "use_max", "memory", "memory_total", "power", "temperature", "ecc", "xid", "stale")
_GPU_TEXTS = ("throttling",)
_NUMBERS = (
    "cpu",
    "cpu_max",
    "cpus",
    "memory",
    "memory_limit",
    "disk_read",
    "disk_write",
    "disk_free",
    "network_in",
    "network_out",
)


_KEPT = (
    *("time", "seconds", "gpu", "ranks", "rank_memory", "rank_data"),
    *_NUMBERS,
    *(f"gpu_{name}" for name in (*_GPU_NUMBERS, *_GPU_TEXTS)),
)


@dataclass(frozen=True)
class GpuSample:
    """One GPU. None: the driver does not report the value, such as the use of a GPU that is divided (MIG)."""

    id: str
    """The beginning of its UUID, such as ``GPU-8932f937``, in a form that CUDA_VISIBLE_DEVICES accepts."""
    use: Number = None
    """Percent of the time in which a kernel ran; the mean over the sample's time."""
    use_max: Number = None
    memory: Number = None
    """Bytes; the largest in the sample's time."""
    memory_total: Number = None
    power: Number = None
    """Watts; the mean."""
    temperature: Number = None
    """Degrees Celsius; the largest."""
    throttling: str | None = None
    """Why its clocks are slowed down: those of ``power,thermal,hardware`` that apply; empty if they are not."""
    ecc: Number = None
    """Uncorrected memory errors since the driver was loaded."""
    xid: Number = None
    """The number of the last fault that the driver has reported in this sample's time."""
    stale: Number = None
    """Seconds since these values were read, if the driver has not answered since."""


_GPU_FIELDS = [field.name for field in fields(GpuSample)][1:]


@dataclass(frozen=True)
class Sample:
    """One host. Bytes per second are means over the sample's time."""

    time: float
    """The end of the sample, in seconds since the epoch."""
    seconds: float
    """The length of the time that it covers, which ends at ``time``."""
    cpu: Number = None
    """Processors in use; the mean."""
    cpu_max: Number = None
    cpus: Number = None
    """Processors that the host may use."""
    memory: Number = None
    """Bytes in use that cannot be freed, of the control group or else of the machine; the largest."""
    memory_limit: Number = None
    """Bytes: the limit of the control group, or else the memory of the machine."""
    disk_read: Number = None
    disk_write: Number = None
    disk_free: Number = None
    """Bytes that are free in the job's folder."""
    network_in: Number = None
    network_out: Number = None
    ranks: Mapping[int, float] = field(default_factory=dict)
    """Bytes of memory of each rank, with the processes that it started; the largest."""
    data: Mapping[int, float] = field(default_factory=dict)
    """The share of the time, from 0 to 1, in which each rank waited for its data, where it reports that."""
    gpus: Sequence[GpuSample] = ()

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Sample:
        """The sample in an event that `check` accepts."""
        ids = event.get("gpu") or ()
        missing = [None] * len(ids)
        columns = ([*(event.get(f"gpu_{name}") or ()), *missing] for name in _GPU_FIELDS)
        return cls(
            event.get("time") or 0.0,
            event["seconds"],
            **{name: event.get(name) for name in _NUMBERS},
            ranks=_by_rank(event, "rank_memory"),
            data=_by_rank(event, "rank_data"),
            gpus=tuple(map(GpuSample, ids, *columns)),  # many hosts have a hundred thousand of them
        )

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return {**asdict(self), "gpus": [asdict(gpu) for gpu in self.gpus]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sample:
        """The inverse of `to_dict`, also after a round trip through JSON. Raises TypeError or ValueError."""
        by_rank = {
            name: {int(rank): value for rank, value in (values.get(name) or {}).items()}
            for name in ("ranks", "data")
        }
        return cls(**{**values, **by_rank, "gpus": tuple(GpuSample(**gpu) for gpu in values["gpus"])})


def _by_rank(event: Mapping[str, Any], name: str) -> dict[int, float]:
    values = zip(event.get("ranks") or (), event.get(name) or ())
    return {int(rank): value for rank, value in values if value is not None}


def check(given: Fields) -> None:
    """Raises ValueError if a field of a sample's event has the wrong type."""
    given.time("time")
    given.number("seconds", least=0)
    for name in _NUMBERS:
        given.number(name, None, least=0)
    lists = {"gpu": given.texts("gpu", ())}
    for name in (*(f"gpu_{name}" for name in _GPU_NUMBERS), "ranks", "rank_memory", "rank_data"):
        lists[name] = given.numbers(name)
    for name in (f"gpu_{name}" for name in _GPU_TEXTS):
        lists[name] = given.items(name, ())
        if not all(value is None or isinstance(value, str) for value in lists[name]):
            raise ValueError(f"{name} is not a list of strings")
    for name, values in lists.items():
        if len(values) > (MOST_GPUS if name.startswith("gpu") else MOST_RANKS):
            raise ValueError(f"{name} is too long")
        if any(isinstance(value, str) and len(value) > LONGEST_TEXT for value in values):
            raise ValueError(f"{name} has a text that is too long")
    if any(rank is None or not float(rank).is_integer() for rank in lists["ranks"]):
        raise ValueError("ranks are not whole numbers")


def add_recent(recent: dict[str, list[dict[str, Any]]], event: Mapping[str, Any]) -> None:
    """Add a sample's event to the recent ones of its host, oldest first, and drop the oldest if there are too many."""
    host = event["source"]
    if host not in recent and len(recent) == MOST_HOSTS:
        return
    of_host = recent.setdefault(host, [])
    of_host.append({name: event[name] for name in _KEPT if name in event})
    del of_host[: -max(FEWEST, min(MOST_OF_A_HOST, MOST_IN_ALL // len(recent)))]
