"""Work that a thread of ours does, for those who wait for work of the backend."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Callable


class ThreadWork:
    """Work of a thread beside, with the methods of ``torch.distributed.Work`` that are needed.

    Args:
        carrier: what it is done by, as the timeline calls it.
    """

    began: int | None = None
    """When the thread came to it, in ns of the steady clock, where that is known."""

    def __init__(self, future: Future[None], carrier: str) -> None:
        self._future = future
        self.carrier = carrier

    def is_completed(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        self._future.result()

    def when_done(self, call: Callable[[], None]) -> None:
        """Have it called at the end, by whichever thread."""
        self._future.add_done_callback(lambda _: call())
