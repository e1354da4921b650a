"""Reads the lines of a file, local or remote, that another process appends to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

POLL_SECONDS = 0.1

LONGEST_LINE = 1 << 20
"""Bytes after which an unfinished line is returned anyway."""


def follow_lines(read: Callable[[int], bytes], while_: Callable[[], bool] | None = None) -> Iterator[str]:
    """The lines of a file, including those that are appended while ``while_()`` is true.

    An incomplete last line is returned at the end.

    Args:
        read: returns some bytes from a position; nothing at the end of the file.
    """
    rest = b""
    position = 0
    last_look = while_ is None
    while True:
        # ask before reading, so as to see everything that was written before the answer
        last_look = last_look or (while_ is not None and not while_())
        data = read(position)
        while data:
            position += len(data)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            yield from (line.decode("utf-8", "backslashreplace") for line in lines)
            data = read(position)
        if last_look:
            break
        time.sleep(POLL_SECONDS)
    if rest:
        yield rest.decode("utf-8", "backslashreplace")
