"""A queue that signal handlers may put into, and whose timeouts hold despite signals."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import deque
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class SignalSafeQueue(Generic[T]):
    """Like `queue.SimpleQueue`, which has a bug: its ``get(timeout=...)`` waits forever if a signal interrupts it and
    the timeout expires before the wait continues.

    CPython's ``_queue.SimpleQueue.get`` then passes a negative timeout, which means no limit; ``Lock.acquire`` checks
    for that. The bug affects slow machines, where a signal handler takes longer than the rest of the timeout.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._is_empty = Lock()
        self._is_empty.acquire()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._wake()

    def get(self, timeout: float | None = None) -> T:
        """The next item. Raises queue.Empty if there is none after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with contextlib.suppress(IndexError):
                item = self._items.popleft()
                if self._items:
                    self._wake()  # another thread may wait for the remaining items
                return item
            left = -1 if deadline is None else deadline - time.monotonic()
            if deadline is not None and left <= 0:
                raise queue.Empty
            self._is_empty.acquire(timeout=left)

    def get_nowait(self) -> T:
        """The next item. Raises queue.Empty if there is none."""
        return self.get(timeout=0)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is free already
            self._is_empty.release()
