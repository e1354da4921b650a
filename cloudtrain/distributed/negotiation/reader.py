"""Reads a connection in the thread that waits for a message, or else in a background thread.

Handing a message from one thread to another takes longer than receiving it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Callable, Protocol

TICK_SECONDS = 0.5
"""The longest time that one read waits for input."""
REST_SECONDS = 0.001
"""How long the background thread sleeps while another thread reads, and how soon after it the background resumes."""


class Reader:
    """Calls ``read`` repeatedly until `stop`, from one thread at a time.

    Args:
        read: waits for input for at most the given number of seconds and handles it; False ends the reader.
        name: of the background thread.
    """

    def __init__(self, read: Callable[[float], bool], name: str) -> None:
        self._read = read
        self._reading = threading.Lock()
        self._last_driven = float("-inf")
        self._running = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def drive(self, done: Callable[[], bool], deadline: float) -> bool:
        """Read in this thread until ``done()`` or ``deadline``. Returns False immediately if another thread reads."""
        if not self._running or not self._reading.acquire(blocking=False):
            self._last_driven = (
                time.monotonic()
            )  # the background thread rests, so that this one can read next time
            return False
        try:
            while self._running and not done():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._running = self._read(min(left, TICK_SECONDS))
        finally:
            self._last_driven = time.monotonic()
            self._reading.release()
        return True

    def stop(self) -> None:
        """Start no further read. The caller makes a read in progress return, by some input."""
        self._running = False
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._running:
            if time.monotonic() - self._last_driven < REST_SECONDS or self._reading.locked():
                time.sleep(REST_SECONDS)
                continue
            with self._reading:
                if self._running:
                    self._running = self._read(TICK_SECONDS)


class ClosableInChild(Protocol):
    def close_in_child(self) -> None: ...


_open: weakref.WeakSet[ClosableInChild] = weakref.WeakSet()


def close_on_fork(connection: ClosableInChild) -> None:
    """Call ``connection.close_in_child`` in every child forked from now on.

    Forked children, such as data loader workers, inherit connections. While a child holds one open, the other ranks
    cannot detect that its parent died.
    """
    _open.add(connection)


def _close_all() -> None:
    for connection in list(_open):
        connection.close_in_child()


os.register_at_fork(after_in_child=_close_all)
