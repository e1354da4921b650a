"""A monotonic clock: setting the time of day does not change it."""

from __future__ import annotations

import sys
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:  # every rank imports this module, and few need typing
    from typing import Callable

running: Callable[[], float]
"""Seconds since the start of the machine, including those in which it was suspended."""
if sys.platform == "linux":
    running = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    running = time.monotonic
