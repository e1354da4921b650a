"""Reads in a thread what may take minutes, such as from a driver that hangs."""

from __future__ import annotations

import threading
import time
from typing import Callable, Generic, TypeVar

Value = TypeVar("Value")

PATIENCE = 0.2
"""Seconds to wait for a new value. Then, the last one has to do."""


class Background(Generic[Value]):
    """The last value of a function, which a daemon thread calls first, and on each `get`. It ends with the process.

    Args:
        open: returns that function, or None if there is nothing to read here. Called in the thread, too.
        share: the share of a processor that the thread may take. If it takes more, some calls get the last value.
    """

    def __init__(self, name: str, open: Callable[[], Callable[[], Value] | None], share: float) -> None:
        self._open = open
        self._share = share
        self._asked = threading.Event()
        self._asked.set()  # a first value, which a later call may have to do with
        self._answered = threading.Event()
        self._is_urgent = threading.Event()
        self._last: tuple[Value, float] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def get(self, urgent: float = 0.0) -> tuple[Value, float] | None:
        """The value, and its age in seconds: 0 if it is new. None as long as there is none.

        Args:
            urgent: seconds to wait for a new value, whatever it costs.
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
