"""Says, while a host waits for others, for whom and for how long."""

from __future__ import annotations

import time
from typing import Callable

from cloudtrain.runtime.output import say

FIRST_SECONDS = 10.0
"""A shorter wait is normal: the machines of a job do not start at the same time."""
EVERY_SECONDS = 30.0

Say = Callable[[str], None]


class Waiting:
    """One wait. Call `report` again and again; it prints a line after 10 s, and then every 30 s.

    Args:
        limit: the seconds after which the wait ends.
        say: prints a line.
    """

    def __init__(self, limit: float, say: Say = say) -> None:
        self._limit = limit
        self._say = say
        self._since = time.monotonic()
        self._next = self._since + FIRST_SECONDS

    def report(self, whom: str) -> None:
        """``whom``: the hosts, such as ``algo-2, algo-3``."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_SECONDS
            self._say(f"waiting for {whom}, {now - self._since:.0f} s of {self._limit:g} s")
