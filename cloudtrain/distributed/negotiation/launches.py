"""What this rank has launched without asking, in the order that all ranks know by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any


class Launches:
    """Counts them, and remembers those that may be under way still.

    The others learn of it when they fail, to say which rank is behind, or after they have joined, to take part.
    """

    def __init__(self) -> None:
        self.count = 0
        self._label = ""
        self._under_way: list[Any] = []
        self._lock = threading.Lock()

    def add(self, label: str, spec: Any) -> int:
        """Something was launched; ``spec`` (JSON) tells a rank that has joined what to do. Its number."""
        with self._lock:
            self.count += 1
            self._label = label
            self._under_way.append(spec)
            return self.count

    def complete(self, number: int) -> None:
        """The launch of that ``number`` has ended, and so have all before it."""
        with self._lock:
            first = self.count - len(self._under_way) + 1
            del self._under_way[: max(number - first + 1, 0)]

    def place(self) -> dict[str, Any]:
        """Where this rank is, for the others (JSON)."""
        with self._lock:
            return {"at": self._label, "launched": self.count, "under way": list(self._under_way)}

    def missing(self, place: dict[str, Any]) -> Iterator[Any]:
        """What another rank at ``place`` has launched and this one has not."""
        first = place["launched"] - len(place["under way"]) + 1
        yield from place["under way"][max(self.count - first + 1, 0) :]
