"""Reads the events of this host as they are written. The script may have put anything in place of their file."""

from __future__ import annotations

from collections.abc import Iterator

from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import Paths
from cloudtrain.observe.events import Event, parse_events
from cloudtrain.observe.growing import Bookmark, new_lines

PART = 1 << 20
"""Bytes that are read at a time."""
MOST = 1 << 30
"""Bytes that are read in all: a process may write forever."""


class NewEvents:
    """The events in the file of this host."""

    def __init__(self, paths: Paths) -> None:
        self._folder = paths.base
        self._key = paths.events.relative_to(paths.base).as_posix()
        self._mark = Bookmark()

    def read(self) -> Iterator[list[Event]]:
        """The events that were not returned before, some at a time.

        Raises OSError if there is no file, or something else in its place.
        """
        with Beneath(self._folder) as folder, folder.open(self._key) as file:

            def part(position: int) -> bytes:
                file.seek(position)
                return file.read(max(0, min(PART, MOST - position)))

            for lines in new_lines(part, self._mark):
                yield [*parse_events(filter(None, lines))]
