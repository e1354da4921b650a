"""Reads a file that another process appends to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_SECONDS = 0.1
READ_SIZE = 1 << 20


def follow_lines(path: Path, while_: Callable[[], bool] | None = None) -> Iterator[str]:
    """The complete lines of ``path``; while ``while_()`` is true also those that are still to come.

    A file that is not there yet is empty. What is left without an end when it is over counts as a line.
    """
    rest = b""
    position = 0
    last_look = while_ is None
    while True:
        # asked before the file is read: what was written before the answer is seen
        last_look = last_look or (while_ is not None and not while_())
        data = _read(path, position)
        while data:
            position += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode("utf-8", "backslashreplace") for line in lines)
            data = _read(path, position)
        if last_look:
            break
        time.sleep(POLL_SECONDS)
    if rest:
        yield rest.decode("utf-8", "backslashreplace")


def _read(path: Path, position: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(position)
            return file.read(READ_SIZE)
    except FileNotFoundError:
        return b""
