"""Decides which streams of a log to read next, where there are too many for every round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

AT_ONCE = 40
"""Streams in a round, unless more of them are busy."""
BUSY_SECONDS = 60.0
"""How long a stream counts as busy after its last events."""


class _Stream(Protocol):
    name: str


S = TypeVar("S", bound=_Stream)


class Turns:
    """Busy streams are read in every round, and quiet ones in turns: each round adds a fourth of the busy."""

    def __init__(self) -> None:
        self._read_at: dict[str, float] = {}
        self._busy_until: dict[str, float] = {}

    def due(self, streams: Sequence[S]) -> list[S]:
        """The streams of the next round, in the same order. A stream that was never read is among them."""
        now = time.monotonic()
        busy = {stream.name for stream in streams if self._busy_until.get(stream.name, now + 1) > now}
        quiet = [stream.name for stream in streams if stream.name not in busy]
        quiet.sort(key=self._read_at.__getitem__)
        due = busy.union(quiet[: max(AT_ONCE - len(busy), len(busy) // 4)])
        return [stream for stream in streams if stream.name in due]

    def was_read(self, stream: S, *, is_busy: bool) -> None:
        """Note that ``stream`` has been read."""
        now = time.monotonic()
        self._read_at[stream.name] = now
        self._busy_until[stream.name] = (
            now + BUSY_SECONDS if is_busy else self._busy_until.get(stream.name, now)
        )
