"""Which hosts of a job have a place in its world, and which wait for one: its spare hosts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.supervisor.record import JobRecord

LOSES_ITS_PLACE = (FailureClass.HOST_LOST, FailureClass.GPU_FAULT)
"""A host with such a failure is left out immediately, if a spare waits."""
_AFTER_TWO = (FailureClass.KILLED, FailureClass.HANG, FailureClass.DISK_FULL)
"""A host with two of these is left out: one alone may be a fault of the script."""


def assign(everyone: Sequence[str], count: int, left_out: Collection[str]) -> tuple[list[str], list[str]]:
    """The hosts in rank order, and the spares. A spare has the rank of the host whose place it takes.

    Args:
        everyone: the hosts, the spares last.
        count: how many have a place.
        left_out: hosts that have lost their places, in this order. Without a spare that is left, they keep them.

    >>> assign(["a", "b", "c"], 2, ["a"])
    (['c', 'b'], [])
    """
    names, spares = list(everyone[:count]), [name for name in everyone[count:] if name not in left_out]
    for name in left_out:
        if name in names and spares:
            names[names.index(name)] = spares.pop(0)
    return names, spares


def leave_out(
    record: JobRecord, failure: FailureReport, spares: Sequence[str]
) -> tuple[JobRecord, tuple[str, ...]]:
    """The record after a failure, and the host that loses its place, if one does.

    Args:
        spares: those that could take it now.
    """
    host, known = failure.host or "", failure.failure_class
    is_blamed = known in _AFTER_TWO or (known == FailureClass.OUT_OF_MEMORY and failure.signal is not None)
    if not host or not (is_blamed or known in LOSES_ITS_PLACE):
        return record, ()
    if is_blamed and host not in record.blamed:
        return replace(record, blamed=(*record.blamed, host)), ()
    if not spares or host in record.left_out:
        return record, ()
    return without(record, (host,), spares), (host,)


def without(record: JobRecord, hosts: Sequence[str], spares: Sequence[str]) -> JobRecord:
    """The record when ``hosts`` have lost their places; also without the spares that could not take one."""
    gone = [name for name in record.spares if name not in (*spares, *record.left_out)]
    return replace(record, left_out=(*record.left_out, *gone, *hosts))


def spare_details(record: JobRecord) -> dict[str, str]:
    """The spare hosts of a job, for the details of its description: those that were used, and those that wait."""
    waiting = (
        [f"{', '.join(record.spares)} {'waits' if len(record.spares) == 1 else 'wait'}"]
        if record.spares
        else []
    )
    shown = [*record.taken, *(waiting if not record.status.is_final else [])]
    return {"spare hosts": "; ".join(shown)} if shown else {}
