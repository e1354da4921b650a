"""The lines of a container's log, as the kubelet sends them: each after the time at which it was printed.

A kubelet joins the parts in which a container runtime stores lines of more than 16 KiB. Lines without a time are the
kubelet's own: it reports there that it cannot read a log.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST_LINE = 1 << 20
"""Bytes after which a line continues as another one, so that 200 pods cannot fill the memory."""

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
"""RFC 3339; a kubelet uses the time zone of its node."""


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
