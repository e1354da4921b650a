"""Queries each platform in its own thread, so that one that is slow or does not answer delays no other."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cloudtrain.errors import CloudtrainError
from cloudtrain.index import IndexEntry

T = TypeVar("T")

SHARE = 10.0
"""The pause before the next query of a platform, as a multiple of the time that its last answer took."""
LONGEST = 30.0
"""The longest pause, in seconds."""
STALE_SECONDS = 10.0
"""After this time without an answer, the last one counts as old."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """The answer of a platform."""

    result: T | None
    """The last result; None before the first one."""
    problem: str
    """Why there is no newer result: the platform is still being queried, or the query failed. Empty if it is new."""


@dataclass
class _Asked(Generic[T]):
    jobs: Sequence[IndexEntry] = ()
    thread: threading.Thread | None = None
    began: float = 0.0
    due_at: float = float("-inf")
    result: T | None = None
    problem: str = ""


@dataclass
class Asking(Generic[T]):
    """The newest result of ``look`` for each platform. Thread-safe.

    Args:
        look: called with the jobs of one platform, in a thread. Its errors become the ``problem`` of an answer.
        patience: seconds to wait for the platforms that a call queries; None: until all of them have answered.
    """

    look: Callable[[Sequence[IndexEntry]], T]
    patience: float | None
    _platforms: dict[str, _Asked[T]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, entries: Iterable[IndexEntry]) -> Mapping[str, Answer[T]]:
        """The answer of each platform of these jobs."""
        jobs: dict[str, list[IndexEntry]] = defaultdict(list)
        for entry in entries:
            jobs[entry.platform].append(entry)
        with self._lock:
            started = [thread for name, its_jobs in jobs.items() if (thread := self._start(name, its_jobs))]
        until = None if self.patience is None else time.monotonic() + self.patience
        for thread in started:
            thread.join(None if until is None else max(until - time.monotonic(), 0.0))
        with self._lock:
            return {name: self._answer(name) for name in jobs}

    def _start(self, name: str, jobs: Sequence[IndexEntry]) -> threading.Thread | None:
        """Query a platform, unless a query is in progress or one for the same jobs has just ended."""
        asked, now = self._platforms.setdefault(name, _Asked()), time.monotonic()
        if asked.thread or (now < asked.due_at and asked.jobs == jobs):
            return None
        asked.jobs, asked.began = jobs, now
        thread = threading.Thread(target=self._run, args=(asked,), name=f"ask {name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads: the next call tries again
            asked.problem = str(error)
            return None
        asked.thread = thread  # it waits for the lock before it takes this back
        return thread

    def _run(self, asked: _Asked[T]) -> None:
        result, problem = asked.result, ""
        try:
            result = self.look(asked.jobs)
        except CloudtrainError as error:
            problem = error.message
        except Exception as error:  # raised by a plug-in
            problem = f"{type(error).__name__}: {error}"
        with self._lock:
            now = time.monotonic()
            asked.result, asked.problem, asked.thread = result, problem, None
            asked.due_at = now + min(SHARE * (now - asked.began), LONGEST)

    def _answer(self, name: str) -> Answer[T]:
        asked = self._platforms[name]
        is_late = asked.result is None or time.monotonic() - asked.began > STALE_SECONDS
        waits = f"asking {name} ..." if asked.thread and is_late else ""
        return Answer(asked.result, asked.problem or waits)
