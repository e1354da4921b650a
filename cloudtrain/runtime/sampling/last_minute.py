"""Describes the memory of a host in the minute before a rank ran out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cloudtrain.runtime.sampling.machine import Machine
from cloudtrain.runtime.sampling.nvml import Reading

AGES = (60, 50, 40, 30, 20, 10, 5, 3, 2, 1, 0)
"""The times to print, in seconds before the end."""
MOST_RANKS = 4
"""The most ranks in a line, which are those with the most memory."""

_GIB = 1 << 30


class Moment(NamedTuple):
    time: float
    """The time on the clock of `time.monotonic`."""
    memory: int | None
    """The bytes in use on the host: see `Machine.memory`."""
    ranks: dict[int, int]
    """The bytes of each rank."""


def until_end_of(rank: int | None, moments: Sequence[Moment]) -> Sequence[Moment]:
    """``moments`` up to the last one in which ``rank`` had memory; all of them if it never had any."""
    last = max(
        (number for number, moment in enumerate(moments) if rank in moment.ranks), default=len(moments)
    )
    return moments[: last + 1]


def describe(moments: Sequence[Moment], machine: Machine, gpus: Reading | None) -> str:
    """The memory at several times, as lines of text; empty without moments."""
    return "\n".join(_lines(moments, machine, gpus)) if moments else ""


def _lines(moments: Sequence[Moment], machine: Machine, gpus: Reading | None) -> Iterator[str]:
    limit, peak = machine.memory_limit, machine.memory_peak()
    facts = [f"limit {_gib(limit)}"] if limit else []
    facts += [f"peak with caches {_gib(peak)}"] if peak else []
    about = ", ".join(facts)
    yield f"Memory of the host in the last minute{f' ({about})' if about else ''}:"
    end, shown = moments[-1].time, None
    for age in AGES:
        found = min(moments, key=lambda moment: abs(end - moment.time - age))
        if found is shown:
            continue
        shown = found
        largest = sorted(found.ranks.items(), key=lambda item: -item[1])[:MOST_RANKS]
        ranks = ", ".join(f"rank {rank}: {_gib(size)}" for rank, size in sorted(largest))
        memory = "n/a" if found.memory is None else _gib(found.memory)
        yield f"{end - found.time:>4.0f} s before the end {memory:>9}{f'  {ranks}' if ranks else ''}"
    for gpu, used, total in (
        zip(gpus.ids, gpus.columns["memory"], gpus.columns["memory_total"]) if gpus else ()
    ):
        if used is not None:
            yield f"{gpu}: {_gib(used)} of {_gib(total)}"


def _gib(size: float) -> str:
    return f"{size / _GIB:.2f} GiB"
