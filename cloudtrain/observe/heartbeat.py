"""A rank's heartbeat, for the runtime's hang watchdog.

Collectives and checkpoints call `beat`. A script with other long steps may call it too.
"""

from __future__ import annotations

import contextlib
import os
import time

VARIABLE = "CLOUDTRAIN_HEARTBEAT_FILE"
INTERVAL = 0.5
"""Minimum seconds between two touches of the file."""

_last = 0.0


def beat() -> None:
    """Report that this rank makes progress. Cheap enough for every step; does nothing outside a job."""
    global _last
    now = time.monotonic()
    if now - _last < INTERVAL:
        return
    _last = now
    path = os.environ.get(VARIABLE)
    if path is not None:
        with contextlib.suppress(OSError):
            os.utime(path)
