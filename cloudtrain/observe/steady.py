"""The time of day by which the durations of a job are measured. A step of the machine's clock does not change it.

It is the time of day at which the first process of the job on this machine started, plus the time since then on the
monotonic clock, which all processes of a machine share. The variable passes the difference of the clocks to children.
"""

from __future__ import annotations

import os
import time

from cloudtrain._system.clocks import running
from cloudtrain._system.processes import boot_id

VARIABLE = "CLOUDTRAIN_CLOCK"
"""The seconds that the time of day was ahead of the monotonic clock at that start, and the machine's boot id."""
STEP_SECONDS = 2.0
"""A smaller difference is clock drift, or its correction."""


def _offset_of(clock: str) -> float | None:
    """The offset in the result of `clock`, if it is from this machine since its last boot."""
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
    """The time on the clock of a job, in seconds since the epoch; None if the clock is another machine's."""
    offset = _offset_of(clock)
    return None if offset is None else offset + running()


def now_on(clock: str) -> float:
    """Like `now_here`, but the time of day if the clock is another machine's."""
    here = now_here(clock)
    return time.time() if here is None else here


def step() -> float:
    """How far the machine's clock has been set ahead since then, in seconds; 0.0 if it is only drift."""
    ahead = time.time() - now()
    return ahead if abs(ahead) > STEP_SECONDS else 0.0
