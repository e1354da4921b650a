"""Reads a file that another process appends to, wherever the file is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

POLL_SECONDS = 0.1


def follow_lines(read: Callable[[int], bytes], while_: Callable[[], bool] | None = None) -> Iterator[str]:
    """The complete lines of a file; while ``while_()`` is true also those that are still to come.

    What is left without an end when it is over counts as a line.

    Args:
        read: gives a part of the file from a position on; nothing at its end.
    """
    rest = b""
    position = 0
    last_look = while_ is None
    while True:
        # asked before the file is read: what was written before the answer is seen
        last_look = last_look or (while_ is not None and not while_())
        data = read(position)
        while data:
            position += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "backslashreplace") for line in lines)
            data = read(position)
        if last_look:
            break
        time.sleep(POLL_SECONDS)
    if rest:
        yield rest.decode("utf-8", "backslashreplace")
