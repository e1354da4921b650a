"""Merges logs that grow at the same time into one, in the order in which their lines were printed.

A line waits for earlier ones of the other logs: as long as these still deliver, but only for a moment. So lines that
were printed long ago are in order, and new ones are late by a fraction of a second.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain
from typing import NamedTuple

from cloudtrain.platforms.kubernetes.logs.lines import Line

HELD_BYTES = 64 << 20
"""The maximum size of the lines in memory, for all logs."""
LEAST_BYTES = 1 << 16
"""Of one log, however many there are."""
LINE_COST = 200
"""Bytes that a line takes in memory, in addition to its text."""

TICK = 0.05
QUIET = 0.1
"""Seconds without new lines after which no other log waits for this one."""
FIRST_QUIET = 0.5
"""The same for a log that was never quiet: it may be slow to deliver what was printed before."""
LIVE_WAIT = 0.5
"""The most seconds that a line waits for other logs, from its arrival."""
OLD_WAIT = 5.0
"""The same for a line that was printed before the merge began."""


class Entry(NamedTuple):
    """A line of the merged log. ``time`` is in nanoseconds since the epoch."""

    time: int
    number: int
    """Of the inlet."""
    text: bytes


class Inlet:
    """One of the logs. Its reader calls `put` in its own thread, and waits there while too many lines are held."""

    def __init__(self, merged: LiveMerge, number: int) -> None:
        self._merge = merged
        self.number = number
        self.is_behind = True
        """Whether lines may be on their way that were printed before those of others."""
        self.is_closed = False
        self._batches: deque[tuple[float, int, list[Entry]]] = deque()
        """When each batch arrived, on the clock of the merge; its size in bytes; its lines."""
        self._size = 0
        self._was_quiet = False
        self._heard_at = merged.now
        self._latest = 0
        """The time of the last line. Times never run backwards here: the order of a log is kept."""

    def put(self, lines: Sequence[Line]) -> None:
        """Add lines. Waits while the reader of the merged log is slower than this one. Empty: the log has answered."""
        if self.is_closed:
            return
        latest, batch, size = self._latest, [], 0
        for line in lines:
            latest = max(latest, line.time or 0)
            batch.append(Entry(latest, self.number, line.text))
            size += len(line.text) + LINE_COST
        changed = self._merge.changed
        with changed:
            self._latest = latest
            self._heard_at = self._merge.now
            self.is_behind = True
            if not batch:
                return
            self._batches.append((self._heard_at, size, batch))
            self._size += size
            if self._size > self._merge.share // 2:
                self._merge.hurry()
            changed.wait_for(lambda: self._size <= self._merge.share or self.is_closed)

    def close(self) -> None:
        """No more lines follow. What was put remains."""
        with self._merge.changed:
            self.is_closed = True
            self._merge.hurry()
            self._merge.changed.notify_all()

    @property
    def is_empty(self) -> bool:
        return not self._batches

    def frontier(self, now: float) -> int | None:
        """No line that was printed before follows; None if no other log waits for this one."""
        if self.is_closed or not self.is_behind:
            return None
        if self._size <= self._merge.share:  # else it has more: its reader waits
            quiet = QUIET if self._was_quiet else FIRST_QUIET
            if now - self._heard_at >= quiet and not self._merge.is_strict:
                self._was_quiet = True
                return None
        return self._latest

    def overdue(self, now: float, began: int) -> int:
        """The time of the last line that has waited long enough; 0 if there is none."""
        last = 0
        for arrived, _, batch in self._batches:
            time_of_last = batch[-1].time
            if now - arrived < (LIVE_WAIT if time_of_last >= began else OLD_WAIT):
                break
            last = time_of_last
        return last

    def take(self, until: int) -> list[Entry]:
        """Remove the lines that were printed until then."""
        taken: list[list[Entry]] = []
        while self._batches:
            arrived, size, batch = self._batches[0]
            if batch[-1].time <= until:
                self._batches.popleft()
                self._size -= size
                taken.append(batch)
                continue
            count = next(index for index, entry in enumerate(batch) if entry.time > until)
            if count:
                rest = batch[count:]
                rest_size = sum(len(entry.text) + LINE_COST for entry in rest)
                self._batches[0] = (arrived, rest_size, rest)
                self._size -= size - rest_size
                taken.append(batch[:count])
            break
        return list(chain.from_iterable(taken))


class LiveMerge:
    """Merges what its inlets take. One thread iterates over `rounds`.

    Args:
        is_strict: wait for every log, for as long as it takes: it does not grow any more.
    """

    def __init__(self, *, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        """Notified when readers of logs may continue."""
        self._due = threading.Condition(lock)
        """Notified when a round should not wait for its time."""
        self._hurries = False
        self.share = HELD_BYTES
        self.now = 0.0
        """Seconds that the reader of the merged log has waited: its own pauses make no line late."""
        self._began = time.time_ns()
        self._inlets: list[Inlet] = []
        self._count = 0

    def inlet(self) -> Inlet:
        """One more log."""
        with self.changed:
            inlet = Inlet(self, self._count)
            self._count += 1
            self._inlets.append(inlet)
            self.share = max(LEAST_BYTES, HELD_BYTES // len(self._inlets))
            return inlet

    def round(self, timeout: float = TICK) -> Iterator[Entry]:
        """The lines that are due, in order; those that arrive meanwhile are in the next round."""
        with self.changed:
            asleep = time.monotonic()
            if not self._hurries:
                self._due.wait(timeout)
            self._hurries = False
            self.now += min(time.monotonic() - asleep, 2 * timeout)
            frontiers = [inlet.frontier(self.now) for inlet in self._inlets]
            until = min((found for found in frontiers if found is not None), default=None)
            if until is None:
                until = max((inlet._latest for inlet in self._inlets), default=0)
            else:
                overdue = (inlet.overdue(self.now, self._began) for inlet in self._inlets)
                until = max(until, max(overdue, default=0))
            taken = [lines for inlet in self._inlets if (lines := inlet.take(until))]
            self._inlets = [inlet for inlet in self._inlets if not (inlet.is_closed and inlet.is_empty)]
            self.share = max(LEAST_BYTES, HELD_BYTES // max(1, len(self._inlets)))
            if taken:
                self.changed.notify_all()
        return merge(*taken) if len(taken) > 1 else iter(taken[0] if taken else ())

    def hurry(self) -> None:
        """Begin the next round now. The lock is held."""
        self._hurries = True
        self._due.notify()

    @property
    def is_empty(self) -> bool:
        """Whether all logs have ended, and all lines were taken."""
        with self.changed:
            return not self._inlets
