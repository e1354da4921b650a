"""The saves that go on beside the training: one at a time, and at most one waiting."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  boto3 needs it, and it cannot be imported when the script has ended
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cloudtrain.checkpoint._crew import Crew
from cloudtrain.checkpoint._interrupts import uninterrupted
from cloudtrain.observe import committing

Task = TypeVar("Task")


class Background(Generic[Task]):
    """Calls ``run``, which must not raise, with one task after the other.

    Its threads live only while there is a task, and are no daemons: Python waits for them before it ends, so
    a script that ends without `wait` has its last save committed.
    """

    def __init__(self, run: Callable[[Task, Crew], None]) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        """That of the tasks; None while there is none."""
        self._waiting: Task | None = None

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def submit(self, task: Task) -> None:
        """Run ``task`` now, or after the one that runs. None may be waiting."""
        with uninterrupted(), self._lock:
            self._waiting = task
            if self._thread is None:
                crew = Crew("cloudtrain-checkpoint-part")
                thread = threading.Thread(target=self._work, args=(crew,), name="cloudtrain-checkpoint")
                thread.start()
                self._thread = thread

    def take_back(self) -> Task | None:
        """The task that waits; it waits no more."""
        with self._lock:
            task, self._waiting = self._waiting, None
            return task

    def wait(self) -> None:
        """Until nothing runs and nothing waits."""
        while thread := self._thread:
            thread.join()

    def _work(self, crew: Crew) -> None:
        with committing(), crew:
            while (task := self._next()) is not None:
                self._run(task, crew)
                del task  # and what it holds, while the next one runs

    def _next(self) -> Task | None:
        with self._lock:
            task, self._waiting = self._waiting, None
            if task is None:
                self._thread = None
            return task
