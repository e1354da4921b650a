"""A clock that only runs: setting the time of day does not change it."""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":

    def running() -> float:
        """Seconds since the start of the machine, with those in which it was suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    running = time.monotonic
