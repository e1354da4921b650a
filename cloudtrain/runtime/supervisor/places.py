"""Which hosts of a job have a place in its world, and which wait for one: its spare hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.supervisor.record import JobRecord

LOSES_ITS_PLACE = (FailureClass.HOST_LOST, FailureClass.GPU_FAULT)
"""A host with such a failure is left out immediately, if a spare waits."""
_AFTER_TWO = (FailureClass.KILLED, FailureClass.HANG, FailureClass.DISK_FULL)
"""A host with two of these is left out: one alone may be a fault of the script."""


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
