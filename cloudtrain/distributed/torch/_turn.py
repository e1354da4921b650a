"""Work that a thread of ours does, for those who wait for work of the backend."""

from __future__ import annotations

from concurrent.futures import Future


class Turn:
    """Work of a thread beside, with the methods of ``torch.distributed.Work`` that are needed."""

    def __init__(self, future: Future[None]) -> None:
        self._future = future

    def is_completed(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        self._future.result()
