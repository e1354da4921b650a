"""A sign of life from a rank, for the runtime's hang watchdog.

`beat` is called by collectives and by checkpoints; a script with long steps of another kind may call it too.
"""

from __future__ import annotations

import contextlib
import os
import time

VARIABLE = "CLOUDTRAIN_HEARTBEAT_FILE"
INTERVAL = 0.5
"""Seconds between two touches of the file, at the least."""

_last = 0.0


def beat() -> None:
    """Say that this rank makes progress. Cheap enough for every step; does nothing outside a job."""
    global _last
    now = time.monotonic()
    if now - _last < INTERVAL:
        return
    _last = now
    path = os.environ.get(VARIABLE)
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
