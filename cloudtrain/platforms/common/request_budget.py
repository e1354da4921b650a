"""Keeps the requests of all threads below the rate that a service allows."""

from __future__ import annotations

import threading
import time


class RequestBudget:
    """Lets requests start one after the other, with at least ``interval`` seconds between two of them."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        """Wait for the turn of a request. Turns have the order of the calls."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._interval
        if start > now:
            time.sleep(start - now)
