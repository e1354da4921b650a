"""Threads for the parallel parts of one save or restore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TypeVar

from cloudtrain.checkpoint._interrupts import uninterrupted

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
        with uninterrupted():
            for thread in self._threads:
                thread.start()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results in the order of ``items``. The first error ends the rest; then none still runs."""
        results: dict[int, Result] = {}
        errors: list[BaseException] = []
        ended: SimpleQueue[None] = SimpleQueue()

        def run(number: int, item: Item) -> None:
            try:
                if not errors:
                    results[number] = function(item)
            except BaseException as error:
                errors.append(error)
            ended.put(None)

        count = 0
        try:
            for count, item in enumerate(items, 1):
                self._tasks.put(partial(run, count, item))
            for _ in range(count):
                ended.get()
        except BaseException as error:  # Ctrl-C: the end of the crew waits for those that run
            errors.append(error)
        if errors:
            raise errors[0]
        return [results[number] for number in range(1, count + 1)]

    def _work(self) -> None:
        while task := self._tasks.get():
            task()
