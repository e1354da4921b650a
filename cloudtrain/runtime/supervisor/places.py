"""Decides which hosts of a job have a place in its world, and which wait for one as spare hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.assignment import taken_places
from cloudtrain.runtime.supervisor.record import JobRecord

LOSES_ITS_PLACE = (FailureClass.HOST_LOST, FailureClass.GPU_FAULT)
"""A host with one of these failures is left out immediately, if a spare host waits."""
_AFTER_TWO = (FailureClass.KILLED, FailureClass.HANG, FailureClass.DISK_FULL)
"""A host with two of these failures is left out: a single one may be the script's fault."""


def leave_out(
    record: JobRecord, failure: FailureReport, spares: Sequence[str], least: int
) -> tuple[JobRecord, tuple[str, ...]]:
    """The record after a failure, and the host that loses its place, if one does.

    Args:
        spares: the hosts that could take the place now.
        least: see `without`.
    """
    host, known = failure.host or "", failure.failure_class
    is_blamed = known in _AFTER_TWO or (known == FailureClass.OUT_OF_MEMORY and failure.signal is not None)
    if not host or not (is_blamed or known in LOSES_ITS_PLACE):
        return record, ()
    if is_blamed and host not in record.blamed:
        return replace(record, blamed=(*record.blamed, host)), ()
    if host not in record.hosts:
        return record, ()
    changed = without(record, (host,), spares, 0 if is_blamed else least)
    return (changed, (host,)) if changed else (record, ())


def without(record: JobRecord, hosts: Sequence[str], spares: Sequence[str], least: int) -> JobRecord | None:
    """The record after ``hosts`` have lost their places. Spare hosts that are not in ``spares`` are left out too.

    The spares take the places of the first ``hosts``; the other ``hosts`` are dropped.

    Args:
        least: the smallest number of hosts with which the job can continue; 0 if it needs all of them.

    Returns None if fewer would be left.
    """
    replaced, dropped = hosts[: len(spares)], hosts[len(spares) :]
    if dropped and not 0 < least <= len(record.hosts) - len(dropped):
        return None
    gone = [name for name in record.spares if name not in (*spares, *record.left_out)]
    return replace(record, left_out=(*record.left_out, *gone, *replaced), dropped=(*record.dropped, *dropped))


def came_back(record: JobRecord, name: str, spares: Sequence[str]) -> JobRecord:
    """The record after a lost host has rejoined as one of ``spares``. The others keep their places."""
    left_out = tuple(one for one in record.left_out if one not in (name, *record.hosts))
    dropped = tuple(one for one in record.dropped if one != name)
    return replace(record, left_out=left_out, dropped=dropped, spares=tuple(spares))


def moved(record: JobRecord, names: Sequence[str]) -> tuple[JobRecord, str]:
    """The record with the places that were taken, and a description of all changes of places for the log.

    Args:
        record: has the ``hosts`` of the attempt that has ended.
        names: the hosts of the next attempt, in rank order.
    """
    stayed = [name for name in record.hosts if name not in record.dropped]
    dropped = [name for name in record.hosts if name in record.dropped]
    taken = taken_places(stayed, names)
    left = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left"
    back = names[len(stayed) :] if record.hosts else ()
    changes = [
        *taken,
        *([f"without {', '.join(dropped)}, {left}"] if dropped else []),
        *([f"{', '.join(back)} {'has a place' if len(back) == 1 else 'have places'} again"] if back else []),
    ]
    return replace(record, taken=(*record.taken, *taken)), "; ".join(changes)


def place_details(record: JobRecord) -> dict[str, str]:
    """The used and the waiting spare hosts of a job, and its dropped hosts, for the details of its description."""
    waiting = (
        [f"{', '.join(record.spares)} {'waits' if len(record.spares) == 1 else 'wait'}"]
        if record.spares
        else []
    )
    shown = [*record.taken, *(waiting if not record.status.is_final else [])]
    spares = {"spare hosts": "; ".join(shown)} if shown else {}
    return {**spares, **({"dropped hosts": ", ".join(record.dropped)} if record.dropped else {})}
