"""The time of day that the durations of a job are measured by: a step of the machine's clock does not change it.

It is the time of day at which the first process of the job on this machine started, and the time since then on the
clock that only runs, which all processes of a machine share. The variable passes the difference of both on to children.
"""

from __future__ import annotations

import os
import time

from cloudtrain._system.clocks import running

VARIABLE = "CLOUDTRAIN_CLOCK"
"""Seconds between that clock and the time of day at that start, and the start of the machine."""
STEP_SECONDS = 2.0
"""A smaller difference is the drift of a clock, or its correction."""

_BOOT = "/proc/sys/kernel/random/boot_id"


def _boot() -> str:
    try:
        with open(_BOOT) as file:
            return file.read().strip()
    except OSError:
        return ""


def _given() -> float | None:
    """The difference that the parent has passed on, if it ran on this machine."""
    offset, _, boot = os.environ.get(VARIABLE, "").partition(" ")
    try:
        return float(offset) if boot and boot == _boot() else None
    except ValueError:
        return None


_found = _given()
_offset = time.time() - running() if _found is None else _found


def now() -> float:
    """Seconds since the epoch, as if the clock had not been set since the job started on this machine."""
    return _offset + running()


def pass_on() -> None:
    """Let the processes that this one starts use the same clock."""
    os.environ[VARIABLE] = f"{_offset!r} {_boot()}"


def step() -> float:
    """How far the clock has been set ahead since then, in seconds; 0.0 for little."""
    ahead = time.time() - now()
    return ahead if abs(ahead) > STEP_SECONDS else 0.0
