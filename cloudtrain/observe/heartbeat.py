"""A rank's heartbeat and its position among the collectives, for the runtime's hang watchdog.

Collectives and checkpoints call `beat`. A script with other long steps may call it too.

Every rank imports this module before its script, so it imports little.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "CLOUDTRAIN_HEARTBEAT_FILE"
INTERVAL = 0.5
"""Minimum seconds between two heartbeats outside collectives."""

_FORMAT = "<dQQ"
_SIZE = 24
_DATA_FORMAT = "<ddd"
_DATA_SIZE = 24
"""Bytes that follow the heartbeat: see `note_data`."""

_last = 0.0
_entered = 0
_left = 0


class Heartbeat:
    """The last heartbeat of a rank.

    ``time`` is in seconds on the clock of `time.monotonic`, which all processes of a machine share. ``entered`` and
    ``left`` count the waits for collectives that the rank has begun and ended.
    """

    def __init__(self, time: float, entered: int, left: int) -> None:
        self.time = time
        self.entered = entered
        self.left = left

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


def note_data(seconds: float, first: float, now: float) -> None:
    """Report how long this rank has waited for data since ``first``. This does not count as a heartbeat.

    The times are on the clock of `time.monotonic`.
    """
    _put(_DATA_FORMAT, (seconds, first, now), _SIZE)


def _write() -> None:
    global _last
    _last = time.monotonic()
    _put(_FORMAT, (_last, _entered, _left), 0)


def _put(layout: str, values: tuple[float, ...], offset: int) -> None:
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    try:
        if _opened is None or _opened[0] != path:
            _open(path)
        _write_at(_opened[1], _pack(layout, *values), offset)
    except OSError:
        return


_opened: Any = None
"""The path of the file, and its descriptor, which stays open."""
_pack: Any = None
_write_at: Any = None


def _open(path: str) -> None:
    """Open the file, and import the functions that write to it. Raises OSError."""
    global _opened, _pack, _write_at
    from struct import pack

    from cloudtrain._system.files import write_at

    _pack, _write_at = pack, write_at
    _opened = path, os.open(path, os.O_WRONLY)


def create(path: str) -> None:
    """Create the file of a rank that has not sent a heartbeat, and reserve its space: the disk may be full later."""
    with open(path, "wb") as file:
        file.write(bytes(_SIZE + _DATA_SIZE))


def read(path: str) -> Heartbeat | None:
    """The last heartbeat; None before the first one, or if the file is gone or damaged."""
    from struct import unpack

    try:
        with open(path, "rb") as file:
            data = file.read(_SIZE)
    except OSError:
        return None
    if len(data) < _SIZE:
        return None
    heartbeat = Heartbeat(*unpack(_FORMAT, data))
    return heartbeat if heartbeat.time > 0 else None


def read_data(path: str) -> tuple[float, float, float] | None:
    """The last report of `note_data`; None before the first one. A script may write any numbers there."""
    from struct import unpack

    from cloudtrain._system.files import read_regular

    try:
        data = read_regular(path, _SIZE + _DATA_SIZE)[_SIZE:]
    except OSError:
        return None
    seconds, first, now = unpack(_DATA_FORMAT, data) if len(data) == _DATA_SIZE else (0.0, 0.0, 0.0)
    return (seconds, first, now) if now > 0 else None
