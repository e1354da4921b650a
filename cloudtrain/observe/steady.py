"""The time of day that the durations of a job are measured by: a step of the machine's clock does not change it.

It is the time of day at which the first process of the job on this machine started, and the time since then on the
clock that only runs, which all processes of a machine share. The variable passes the difference of both on to children.
"""

from __future__ import annotations

import os
import time

from cloudtrain._system.clocks import running
from cloudtrain._system.processes import boot_id

VARIABLE = "CLOUDTRAIN_CLOCK"
"""Seconds between that clock and the time of day at that start, and the start of the machine."""
STEP_SECONDS = 2.0
"""A smaller difference is the drift of a clock, or its correction."""


def _offset_of(clock: str) -> float | None:
    """The difference in the result of `clock`, if that was on this machine since it started."""
    offset, _, boot = clock.partition(" ")
    try:
        return float(offset) if boot and boot == boot_id() else None
    except ValueError:
        return None


_found = _offset_of(os.environ.get(VARIABLE, ""))
_offset = time.time() - running() if _found is None else _found


def now() -> float:
    """Seconds since the epoch, as if the clock had not been set since the job started on this machine."""
    return _offset + running()


def clock() -> str:
    """This clock, for other processes of this machine: see `pass_on` and `now_on`."""
    return f"{_offset!r} {boot_id()}"


def pass_on() -> None:
    """Let the processes that this one starts use the same clock."""
    os.environ[VARIABLE] = clock()


def now_here(clock: str) -> float | None:
    """The time on the clock of a job, in seconds since the epoch; None if it is not of this machine."""
    offset = _offset_of(clock)
    return None if offset is None else offset + running()


def now_on(clock: str) -> float:
    """The same; the time of day if it is not of this machine."""
    here = now_here(clock)
    return time.time() if here is None else here


def step() -> float:
    """How far the clock has been set ahead since then, in seconds; 0.0 for little."""
    ahead = time.time() - now()
    return ahead if abs(ahead) > STEP_SECONDS else 0.0
