"""Who reads what comes in: the thread that waits for it, or else one in the background.

A message that has to be handed from thread to thread takes longer than the message itself.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Callable, Protocol

TICK_SECONDS = 0.5
"""How long a turn lasts at most."""
REST_SECONDS = 0.001
"""How long the background thread sleeps while others read, and how soon after them it reads again."""


class Reader:
    """Calls ``turn`` again and again, never by two threads at once, until `stop`.

    Args:
        turn: waits for input, for as many seconds as it is told at most, and handles it; False ends the pump.
        name: of the background thread.
    """

    def __init__(self, turn: Callable[[float], bool], name: str) -> None:
        self._turn = turn
        self._turning = threading.Lock()
        self._last_driven = float("-inf")
        self._going = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def drive(self, over: Callable[[], bool], deadline: float) -> bool:
        """Read in this thread until ``over()`` or until ``deadline``; False at once if another thread does."""
        if not self._going or not self._turning.acquire(blocking=False):
            self._last_driven = (
                time.monotonic()
            )  # whoever reads now rests after that: next time it is our turn
            return False
        try:
            while self._going and not over():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._going = self._turn(min(left, TICK_SECONDS))
        finally:
            self._last_driven = time.monotonic()
            self._turning.release()
        return True

    def stop(self) -> None:
        """No turn begins after this; the one under way has to be ended by some input."""
        self._going = False
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._going:
            if time.monotonic() - self._last_driven < REST_SECONDS or self._turning.locked():
                time.sleep(REST_SECONDS)
                continue
            with self._turning:
                if self._going:
                    self._going = self._turn(TICK_SECONDS)


class ClosedOnFork(Protocol):
    def close_in_child(self) -> None: ...


_open: weakref.WeakSet[ClosedOnFork] = weakref.WeakSet()


def close_on_fork(connection: ClosedOnFork) -> None:
    """Have `close_in_child` called in every child that is forked from now on."""
    _open.add(connection)


def _close_all() -> None:
    for connection in list(_open):
        connection.close_in_child()


os.register_at_fork(after_in_child=_close_all)
