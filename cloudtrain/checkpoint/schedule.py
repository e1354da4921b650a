"""When `Checkpointer.maybe_save` saves."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Protocol, Union

from cloudtrain.errors import CheckpointError

Every = Union[int, str, timedelta, None]

_UNITS = {"s": 1, "m": 60, "h": 3600}


class Schedule(Protocol):
    by_time: bool
    """Whether a save can become due at different steps on different ranks."""

    def is_due(self, step: int) -> bool:
        """Whether to save ``step``. Call it for every step, in ascending order."""
        ...

    def saved(self, step: int) -> None:
        """Record that ``step`` has been saved or restored."""
        ...


def schedule(every: Every) -> Schedule:
    """The schedule for a number of steps, or for a time such as ``"10m"``. With None no save is ever due."""
    if every is None:
        return _Never()
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return _Steps(every)
    seconds = every.total_seconds() if isinstance(every, timedelta) else _seconds(every)
    if not seconds > 0:
        raise CheckpointError(
            f"every={every!r} is neither a number of steps nor a time",
            hint='Give steps as 500, or a time as "30s", "10m", "1.5h" or a timedelta.',
        )
    return _Time(seconds)


class _Never:
    by_time = False

    def is_due(self, step: int) -> bool:
        return False

    def saved(self, step: int) -> None:
        pass


class _Steps:
    by_time = False

    def __init__(self, every: int) -> None:
        self._every = every
        self._last: int | None = None

    def is_due(self, step: int) -> bool:
        """At each multiple, or at the first step after it if steps are skipped."""
        last = step - 1 if self._last is None else self._last
        due = step // self._every > last // self._every
        if not due:
            self._last = step
        return due

    def saved(self, step: int) -> None:
        self._last = step


class _Time:
    by_time = True

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def is_due(self, step: int) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def saved(self, step: int) -> None:
        self._last = time.monotonic()


def _seconds(text: object) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text) if isinstance(text, str) else None
    return float(match[1]) * _UNITS[match[2]] if match else 0.0
