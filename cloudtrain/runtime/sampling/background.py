"""Calls, in a thread, functions that may take minutes, for example because a driver hangs."""

from __future__ import annotations

import threading
import time
from typing import Callable, Generic, TypeVar

Value = TypeVar("Value")

PATIENCE = 0.2
"""Seconds to wait for a new value before the last one is returned."""


class Background(Generic[Value]):
    """The last value of a function, which a daemon thread calls at the start and on each `get`.

    Args:
        open: returns that function, or None if there is nothing to read on this host. The thread calls it too.
        share: the share of a processor that the thread may use. If it uses more, some calls get the last value.
    """

    def __init__(self, name: str, open: Callable[[], Callable[[], Value] | None], share: float) -> None:
        self._open = open
        self._share = share
        self._asked = threading.Event()
        self._asked.set()  # request a first value, which later calls may have to return
        self._answered = threading.Event()
        self._is_urgent = threading.Event()
        self._last: tuple[Value, float] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def get(self, urgent: float = 0.0) -> tuple[Value, float] | None:
        """The value, and its age in seconds, which is 0 for a new value. None if there is no value yet.

        Args:
            urgent: seconds to wait for a new value, regardless of the thread's share of a processor.
        """
        if not self._thread.is_alive():
            return None
        self._answered.clear()
        self._asked.set()
        if urgent:
            self._is_urgent.set()
        is_new = self._answered.wait(urgent or PATIENCE)
        if self._last is None:
            return None
        value, read_at = self._last
        return value, 0.0 if is_new else time.monotonic() - read_at

    def _run(self) -> None:
        read = self._open()
        while read:
            self._asked.wait()
            self._asked.clear()
            used = time.thread_time()
            self._last = (read(), time.monotonic())
            self._answered.set()
            self._is_urgent.clear()
            self._is_urgent.wait((time.thread_time() - used) / self._share)
