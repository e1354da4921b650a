"""Threads: the saves in the background, and the parallel parts of one save or restore."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  boto3 needs it, and it cannot be imported at interpreter exit
import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

from cloudtrain.observe import committing
from cloudtrain.storage.retry_policy import current, using

WORKERS = 8
"""Objects in transfer at the same time: S3 serves each at about 90 MB/s (Amazon S3 User Guide, "Horizontal scaling
and request parallelization for high throughput"). Objects are sent from the snapshot and read into the tensors, so
each costs only the buffers of its connection, a few megabytes."""

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = TypeVar("Task")


class WorkerPool:
    """A thread pool whose threads all start immediately and are not daemons.

    A save may still be running when the script has ended. Python then waits for its threads, but
    ThreadPoolExecutor accepts no more work, and since Python 3.12 no more threads can be started.
    The threads also end when the pool is deleted: Ctrl-C may arrive between their start and the ``with`` block.
    """

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(self._tasks,), name=name) for _ in range(WORKERS)
        ]
        with uninterrupted():
            for thread in self._threads:
                thread.start()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with uninterrupted():
            self._end()
        for thread in self._threads:
            thread.join()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        for _ in range(WORKERS):
            self._tasks.put(None)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results in the order of ``items``.

        After the first error no further item is started; the error is raised once no item is running.
        """
        results: dict[int, Result] = {}
        errors: list[BaseException] = []
        ended: SimpleQueue[None] = SimpleQueue()
        patience = current()

        def run(number: int, item: Item) -> None:
            try:
                if not errors:
                    with using(patience):
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
        except BaseException as error:  # Ctrl-C: __exit__ waits for the running items
            errors.append(error)
        if errors:
            raise errors[0]
        return [results[number] for number in range(1, count + 1)]


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while task := tasks.get():
        task()


class BackgroundSaves(Generic[Task]):
    """Runs saves in the background, one at a time, with at most one more waiting.

    Args:
        run: performs one save; must not raise.

    The threads exist only while there is a save to run. They are not daemons: Python waits for them at exit,
    so a script that ends without calling `wait` still has its last save committed.
    """

    def __init__(self, run: Callable[[Task, WorkerPool], None]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        """Runs the saves; None while there are none."""
        self._waiting: Task | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def submit(self, task: Task) -> None:
        """Run ``task`` now, or after the current one. No other task may be waiting."""
        with uninterrupted(), self._lock:
            self._waiting = task
            if self._thread is None:
                pool = WorkerPool("cloudtrain-checkpoint-part")
                thread = threading.Thread(target=self._work, args=(pool,), name="cloudtrain-checkpoint")
                thread.start()
                self._thread = thread

    def withdraw(self) -> Task | None:
        """Remove and return the waiting task, if any."""
        with self._lock:
            task, self._waiting = self._waiting, None
            return task

    def wait(self, seconds: float | None = None) -> None:
        """Block until no task is running or waiting; with ``seconds``, at most that long."""
        while thread := self._thread:
            thread.join(seconds)
            if seconds is not None:
                return

    def _work(self, pool: WorkerPool) -> None:
        with committing(), pool:
            while (task := self._next()) is not None:
                self._run(task, pool)
                del task  # free its memory before the next one runs

    def _next(self) -> Task | None:
        with self._lock:
            task, self._waiting = self._waiting, None
            if task is None:
                self._thread = None
            return task


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C until the end of this block.

    For code that starts threads: an exception inside `threading` can leave one of its locks held, and then a
    thread hangs and Python cannot exit.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    received: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if received:
            handler(received[0], None)
