"""The lines of a container's log, as the kubelet sends them: each after the time at which it was printed.

A kubelet joins the parts in which a container runtime stores lines of more than 16 KiB. Lines without a time are the
kubelet's own: it reports there that it cannot read a log.

`Position` is where reading continues after a connection broke. The API takes a time in whole seconds: the answer begins
with lines that were read before. They are recognised by their time and their text.
"""

from __future__ import annotations

import calendar
import re
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

LONGEST_LINE = 1 << 20
"""In bytes: a longer one arrives in pieces, so that 200 pods cannot fill the memory."""

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
"""RFC 3339; a kubelet uses the time zone of its node."""

REMEMBERED = 256
"""The last lines, which are recognised when they are repeated. All before them are, too."""
MARGIN = 10**8
"""In nanoseconds: two threads of a container runtime write a log, so that times may run backwards by a little."""


class Line(NamedTuple):
    """A line without its end. ``time`` is in nanoseconds since the epoch; None for the kubelet's own lines."""

    time: int | None
    text: bytes


class LineParser:
    """Reads the times of the lines of one answer."""

    def __init__(self) -> None:
        self._continues: int | None = None
        """The time of a line whose beginning was too long, and has been returned."""
        self._second = (b"", 0)

    def lines(self, given: Iterable[bytes]) -> list[Line]:
        """Lines as `LineStream.batches` yields them, without their ends."""
        found = []
        for line in given:
            text = line.removesuffix(b"\n")
            one = self._parse(text) if self._continues is None else Line(self._continues, text)
            self._continues = one.time if text is line else None
            found.append(one)
        return found

    def _parse(self, line: bytes) -> Line:
        # nearly all lines have the second of the line before, and nine digits
        if line[:19] == self._second[0] and line[29:31] == b"Z " and line[20:29].isdigit():
            return Line(self._second[1] + int(line[20:29]), line[31:])
        match = _STAMP.match(line)
        if match is None and (line.endswith(b"Z") or line[-6:-5] in (b"+", b"-")):
            match = _STAMP.match(line + b" ")  # an empty line may lack the space
        return Line(None, line) if match is None else self._stamped(match, line)

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
        self._read: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)
        """The times of the last lines, and their hashes."""
        self._expected: Counter[int] = Counter()
        """The lines of `_read` that the present answer has not repeated yet."""
        self._read_until = 0
        """Lines of this time or earlier were read before."""
        self.latest = 0
        """The time of the latest line, in nanoseconds since the epoch; 0 before the first line."""

    @property
    def since(self) -> float | None:
        """The time to request, in whole seconds since the epoch; None for the whole log."""
        return float((self.latest - MARGIN) // 10**9) if self._read else None

    @property
    def missing(self) -> int:
        """The number of lines that the present answer should have repeated, and has not."""
        return self._expected.total()

    def reconnect(self) -> None:
        """The next lines are those of a new answer, from `since` on."""
        since = (self.since or 0.0) * 10**9
        self._expected = Counter(mark for time, mark in self._read if time >= since)
        self._read_until = self._read[0][0] if len(self._read) == REMEMBERED else 0

    def new(self, lines: Iterable[Line]) -> list[Line]:
        """The lines that have not been read before. Lines of the kubelet itself do not count."""
        found = [line for line in lines if line.time is not None and line.time > self._read_until]
        if self._expected:
            found = [line for line in found if not self._is_repeated(hash(line))]
        self._read.extend((line.time or 0, hash(line)) for line in found[-REMEMBERED:])
        self.latest = max(self.latest, max((line.time or 0 for line in found), default=0))
        return found

    def _is_repeated(self, mark: int) -> bool:
        if mark not in self._expected:
            return False
        self._expected[mark] -= 1
        if not self._expected[mark]:
            del self._expected[mark]
        return True
