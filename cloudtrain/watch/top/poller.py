"""Queries a platform repeatedly in a thread, so that a platform that does not answer does not block the screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from cloudtrain.errors import CloudtrainError

T = TypeVar("T")

SHORTEST, LONGEST = 1.0, 30.0
"""The shortest and the longest pause between two queries, in seconds."""
SHARE = 10.0
"""The pause as a multiple of the duration of a query."""
ENDED_PAUSE = 10.0
"""The shortest pause when no change is expected."""


class Poller(Generic[T]):
    """The newest result of ``look``, and why there is no newer one.

    Args:
        look: called in a thread. Anything that it raises is shown, and it is called again later.
        first: the result before the first query has ended.
        is_over: returns whether a result is final.
    """

    def __init__(
        self,
        look: Callable[[], T],
        first: T | None = None,
        is_over: Callable[[T], bool] = lambda result: False,
    ) -> None:
        self.result = first
        self.at = time.time()
        """The time at which the result was complete, or else the time at which the first query began."""
        self.problem = ""
        """Why the last query failed; empty if it did not."""
        self.version = 0
        """Increases with every query."""
        self.pause = SHORTEST
        """Seconds until the next query."""
        self._look = look
        self._is_over = is_over
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="cloudtrain-top", daemon=True).start()

    def stop(self) -> None:
        """Stop after the query in progress. Returns immediately."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self.result = self._look()
                self.at, self.problem = time.time(), ""
            except CloudtrainError as error:
                self.problem = error.message
            except Exception as error:  # raised by a plug-in
                self.problem = f"{type(error).__name__}: {error}"
            self.version += 1
            self.pause = min(max(SHARE * (time.monotonic() - began), SHORTEST), LONGEST)
            if self.result is not None and not self.problem and self._is_over(self.result):
                self.pause = max(self.pause, ENDED_PAUSE)
            self._stopped.wait(self.pause)
