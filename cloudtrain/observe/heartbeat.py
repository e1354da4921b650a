"""A rank's heartbeat and its position among the collectives, for the runtime's hang watchdog.

Collectives and checkpoints call `beat`. A script with other long steps may call it too.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from dataclasses import dataclass

VARIABLE = "CLOUDTRAIN_HEARTBEAT_FILE"
INTERVAL = 0.5
"""Minimum seconds between two heartbeats outside collectives."""

_FORMAT = struct.Struct("<dQQ")

_last = 0.0
_entered = 0
_left = 0


@dataclass(frozen=True)
class Heartbeat:
    """The last heartbeat of a rank.

    ``time`` is in seconds on the clock of `time.monotonic`, which all processes of a machine share. ``entered`` and
    ``left`` count the waits for collectives that the rank has begun and ended.
    """

    time: float
    entered: int
    left: int

    @property
    def waits(self) -> bool:
        """Whether the rank waits for a collective."""
        return self.entered > self.left


def beat() -> None:
    """Report that this rank makes progress. Cheap enough for every step; does nothing outside a job."""
    if time.monotonic() - _last >= INTERVAL:
        _write()


def enter_collective() -> None:
    """Report that this rank waits for a collective from now on. `leave_collective` follows."""
    global _entered
    _entered += 1
    _write()


def leave_collective() -> None:
    """Report that the wait is over, however it ended."""
    global _left
    _left += 1
    _write()


def _write() -> None:
    global _last
    _last = time.monotonic()
    file = _file()
    if file is not None:
        with contextlib.suppress(OSError):
            os.pwrite(file, _FORMAT.pack(_last, _entered, _left), 0)


_opened: tuple[str, int] | None = None


def _file() -> int | None:
    """The descriptor of the file, which stays open; None outside a job."""
    global _opened
    path = os.environ.get(VARIABLE)
    if path is None:
        return None
    if _opened is None or _opened[0] != path:
        try:
            _opened = path, os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return None
    return _opened[1]


def create(path: str) -> None:
    """Create the file of a rank that has not sent a heartbeat. Its space is reserved: the disk may be full later."""
    with open(path, "wb") as file:
        file.write(bytes(_FORMAT.size))


def read(path: str) -> Heartbeat | None:
    """The last heartbeat; None before the first one, or if the file is gone."""
    try:
        with open(path, "rb") as file:
            heartbeat = Heartbeat(*_FORMAT.unpack(file.read(_FORMAT.size)))
    except (OSError, struct.error):
        return None
    return heartbeat if heartbeat.time > 0 else None
