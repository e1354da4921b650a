"""Threads for the parallel parts of one save or restore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from queue import SimpleQueue
from types import TracebackType
from typing import TypeVar

WORKERS = 8
"""Objects on their way at the same time: S3 gives each some 90 MB/s (Amazon S3 User Guide, "Horizontal scaling and
request parallelization for high throughput"). They are sent from the snapshot and read into the tensors, so each
costs no memory but the buffers of its connection, a few megabytes."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class Crew:
    """A pool whose threads all run from the start, and are no daemons.

    A save may still be under way when the script has ended. Then Python waits for its threads, but
    ThreadPoolExecutor takes no more work, and Python 3.12 starts no more threads.
    """

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=name) for _ in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results in the order of ``items``. The first error ends the rest; then none still runs."""
        futures = [self._submit(function, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
        for future in futures:
            if not future.cancelled():
                future.result()
        return [future.result() for future in futures]

    def _submit(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        future: Future[Result] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(item))
                except BaseException as error:
                    future.set_exception(error)

        self._tasks.put(run)
        return future

    def _work(self) -> None:
        while task := self._tasks.get():
            task()
