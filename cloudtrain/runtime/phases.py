"""Emits the phases of a job as events: begin, progress, duration."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from cloudtrain._dataclass import dataclass
from cloudtrain.observe import EventLog

REPORT_SECONDS = 0.3
"""Seconds between two reports of progress."""


@dataclass
class Phase:
    """One phase in progress. `add` may be called from several threads."""

    name: str
    events: EventLog
    began: float = field(default_factory=time.monotonic)
    total: int = 0
    done: int = 0
    reported: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_total(self, count: int) -> None:
        """Record that ``count`` more bytes have to be transferred."""
        self.total += count

    def add(self, count: int) -> None:
        """Record that ``count`` bytes were transferred, and report the progress if a report is due."""
        with self.lock:
            self.done += count
            now = time.monotonic()
            if now - self.reported < REPORT_SECONDS:
                return
            self.reported = now
        self.events.emit("progress", phase=self.name, done=self.done, total=self.total)


class Phases:
    """The phases of a job. Use as ``with phases("fetch") as phase: ...``, or with `begin` and `end`."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._open: list[Phase] = []

    @property
    def current(self) -> str | None:
        return self._open[-1].name if self._open else None

    @contextmanager
    def __call__(self, name: str) -> Iterator[Phase]:
        """A phase that ends with the block. If the block raises, the phase stays open and is `current`."""
        phase = self.begin(name)
        yield phase
        self.end(name)

    def begin(self, name: str) -> Phase:
        phase = Phase(name, self._events)
        self._open.append(phase)
        self._events.emit("phase", phase=name, state="began")
        return phase

    def end(self, name: str) -> None:
        """End the phase ``name``, if it is open."""
        for phase in [phase for phase in self._open if phase.name == name]:
            self._open.remove(phase)
            seconds = round(time.monotonic() - phase.began, 3)
            self._events.emit("phase", phase=name, state="ended", seconds=seconds, bytes=phase.done)
