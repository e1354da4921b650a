"""Where the reading of a container's log continues after its connection broke.

The API takes a time in whole seconds: the answer begins with lines that were read before. They are recognised by their
time and their text, in the order of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from cloudtrain.platforms.kubernetes.logs.lines import Line

REMEMBERED = 256
"""The last lines, by which the end of what was read is recognised."""
MARGIN = 10**8
"""In nanoseconds: two threads of a container runtime write a log, so that times may run backwards by a little."""
MOST_HELD = 20_000
"""Lines of one second that may precede those that are remembered."""


class Position:
    """How far one log was read."""

    def __init__(self) -> None:
        self._read: deque[int] = deque(maxlen=REMEMBERED)
        """Hashes of the last lines."""
        self._last: int | None = None
        self._latest = 0
        """The times of the last line, and of the latest line."""
        self._expected: list[int] | None = None
        """While lines are repeated: those of `_read` that have not come again."""
        self._held: deque[Line] = deque(maxlen=MOST_HELD)
        """Repeated lines, or new ones: the next lines show it."""

    @property
    def since(self) -> float | None:
        """The time to ask for, in whole seconds since the epoch; None for the whole log."""
        return None if self._last is None else float((self._last - MARGIN) // 10**9)

    @property
    def latest(self) -> int:
        """The time of the latest line, in nanoseconds since the epoch; 0 before the first line."""
        return self._latest

    def reconnect(self) -> None:
        """The next lines are those of a new answer, from `since` on."""
        self._held.clear()  # they come again
        self._expected = list(self._read) if self._read else None

    def new(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that have not been read before. Lines of the kubelet itself do not count."""
        found: list[Line] = []
        remaining = iter(lines)
        while self._expected is not None and (line := next(remaining, None)):
            found += self._new(line)
        rest = [line for line in remaining if line.time is not None]
        self._add(rest)
        return found + rest if found else rest

    @property
    def unsure(self) -> tuple[tuple[int, ...], tuple[Line, ...]]:
        """The open ends of an answer: the lines that did not come again, and those that are held back."""
        return tuple(self._expected or ()), tuple(self._held)

    def rest(self) -> list[Line]:
        """The lines that were held back, at the end of the log."""
        self._expected = None
        held = [*self._held]
        self._held.clear()
        self._add(held)
        return held

    def _new(self, line: Line) -> Sequence[Line]:
        """The lines that are known to be new now, while lines are repeated."""
        assert self._expected is not None
        if line.time is None:
            return ()
        mark = hash(line)
        if mark in self._expected:
            # all before it was read, too
            self._held.clear()
            del self._expected[: self._expected.index(mark) + 1]
            if not self._expected:
                self._expected = None
        elif line.time > self._latest:  # the log was rotated: the lines that are expected are gone
            return [*self.rest(), *self.new([line])]
        else:
            self._held.append(line)
        return ()

    def _add(self, lines: Sequence[Line]) -> None:
        if lines:
            self._read.extend(map(hash, lines[-REMEMBERED:]))
            self._last = lines[-1].time
            self._latest = max(self._latest, max(line.time or 0 for line in lines))
