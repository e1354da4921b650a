"""Reads the new part of a growing file, so that every byte is read once, however often the file is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

from cloudtrain._dataclass import dataclass

LONGEST_LINE = 1 << 16
"""Bytes of the longest event. A longer line is not an event."""
REMEMBERED = 64
"""Bytes before a position that identify a file."""

Read = Callable[[int], bytes]
"""Returns some bytes from a position; nothing at the end of the file, or if there is no file."""


@dataclass
class Bookmark:
    """A position in a growing file, at the start of a line, and the bytes before it.

    The bytes show whether the file is still the same: a file that was replaced or truncated has different bytes there.
    """

    position: int = 0
    before: bytes = b""

    def to_list(self) -> list[Any]:
        return [self.position, self.before.hex()]

    @classmethod
    def from_list(cls, data: list[Any]) -> Bookmark:
        """The inverse of `to_list`. Raises TypeError or ValueError."""
        position, before = data
        return cls(int(position), bytes.fromhex(before))


def is_same(read: Read, mark: Bookmark) -> bool:
    """Whether the file still has the bytes before ``mark``."""
    return not mark.before or read(mark.position - len(mark.before))[: len(mark.before)] == mark.before


def new_lines(read: Read, mark: Bookmark, longest: int = LONGEST_LINE) -> Iterator[list[str]]:
    """The complete lines after ``mark``, some at a time; moves the mark past those that were returned.

    An incomplete line, which may still be being written, is left for the next call, unless it has more than ``longest``
    bytes.
    """
    data = read(mark.position)
    while data:
        end = data.rfind(b"\n") + 1
        if not end and len(data) <= longest:
            more = read(mark.position + len(data))
            if not more:
                return
            data += more
            continue
        end = end or len(data)
        mark.position += end
        mark.before = (mark.before + data[max(0, end - REMEMBERED) : end])[-REMEMBERED:]
        yield data[:end].decode("utf-8", "replace").split("\n")
        data = data[end:] or read(mark.position)
