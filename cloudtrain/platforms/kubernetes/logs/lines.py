"""The lines of a container's log, as the kubelet sends them: each after the time at which it was printed.

A kubelet joins the parts in which a container runtime stores lines of more than 16 KiB. Lines without a time are the
kubelet's own: it reports there that it cannot read a log.

`Position` is where reading continues after a connection broke. The API takes a time in whole seconds: the answer begins
with lines that were read before. They are recognised by their time and their text, in the order of the log.
"""

from __future__ import annotations

import calendar
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

LONGEST_LINE = 1 << 20
"""Bytes after which a line continues as another one, so that 200 pods cannot fill the memory."""

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
"""RFC 3339; a kubelet uses the time zone of its node."""

REMEMBERED = 256
"""The last lines, by which the end of what was read is recognised."""
MARGIN = 10**8
"""In nanoseconds: two threads of a container runtime write a log, so that times may run backwards by a little."""
MOST_HELD = 20_000
"""Lines of one second that may precede those that are remembered."""


class Line(NamedTuple):
    """A line without its end. ``time`` is in nanoseconds since the epoch; None for the kubelet's own lines."""

    time: int | None
    text: bytes


class LineParser:
    """Splits the bytes of one answer into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """The unfinished line."""
        self._size = 0
        self._continues: int | None = None
        """The time of a line whose beginning was too long, and has been returned."""
        self._second = (b"", 0)

    def feed(self, data: bytes) -> list[Line]:
        """The lines that are complete with ``data``."""
        first, *rest = data.split(b"\n")
        lines = []
        self._parts.append(first)
        self._size += len(first)
        if rest:
            *complete, last = rest
            lines = [self._parse(b"".join(self._parts))]
            self._continues = None
            lines += map(self._parse, complete)
            self._parts, self._size = [last], len(last)
        if self._size > LONGEST_LINE:
            long = self._parse(b"".join(self._parts))
            lines.append(long)
            self._parts, self._size, self._continues = [], 0, long.time
        return lines

    @property
    def pending(self) -> bytes:
        """The unfinished line."""
        return b"".join(self._parts)

    def rest(self) -> Iterator[Line]:
        """The unfinished line as a complete one, if there is one."""
        if text := self.pending:
            yield self._parse(text)
        self._parts, self._size, self._continues = [], 0, None

    def _parse(self, line: bytes) -> Line:
        if self._continues is not None:
            return Line(self._continues, line)
        # nearly all lines have the second of the line before, and nine digits
        if line[:19] == self._second[0] and line[29:31] == b"Z " and line[20:29].isdigit():
            return Line(self._second[1] + int(line[20:29]), line[31:])
        match = _STAMP.match(line)
        if match is None:
            if line.endswith(b"Z") or line[-6:-5] in (b"+", b"-"):  # an empty line may lack the space
                match = _STAMP.match(line + b" ")
            if match is None:
                return Line(None, line)
        return self._stamped(match, line)

    def _stamped(self, match: re.Match[bytes], line: bytes) -> Line:
        *numbers, fraction, zone = match.groups()
        try:
            second = calendar.timegm((*map(int, numbers), 0, 0, 0)) * 10**9
        except ValueError:
            return Line(None, line)
        if zone == b"Z":
            self._second = (line[:19], second)
        else:
            sign = -1 if zone[:1] == b"-" else 1
            second -= sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60) * 10**9
        return Line(second + int((fraction or b"0").ljust(9, b"0")), line[match.end() :])


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
