"""Works that were launched and may not have ended, for backends whose ``wait`` only orders streams (NCCL)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any


class InFlight:
    """Works in the order of their launches, each with its process group.

    A work whose group was aborted never counts as ended well: its kernel has returned, but not with the result.
    """

    def __init__(self) -> None:
        self._works: dict[int, tuple[Any, Any]] = {}
        """By id, with the group. A work here is referenced, so that no other one gets its id."""
        self._aborted: set[Any] = set()
        self._lock = threading.Lock()

    def add(self, work: Any, group: Any) -> None:
        with self._lock:
            self._drop_ended()
            self._works.update((id(part), (part, group)) for part in parts_of(work))

    @property
    def aborted(self) -> bool:
        """Whether a group was aborted."""
        return bool(self._aborted)

    def ended(self) -> bool:
        """Whether every work has ended well."""
        with self._lock:
            self._drop_ended()
            return not self._works

    def group_of(self, work: Any) -> Any:
        """The group of a work that has not ended well; None if it has."""
        with self._lock:
            self._drop_ended()
            for part in parts_of(work):
                found = self._works.get(id(part))
                if found is not None and not self._ended(*found):
                    return found[1]
            return None

    def aborts(self, groups: Iterable[Any]) -> None:
        """The ``groups`` are about to be aborted."""
        with self._lock:
            self._drop_ended()
            self._aborted.update(groups)

    def _drop_ended(self) -> None:
        """Drop the oldest ones that have ended. Each of them costs a query of the GPU, but no wait for it."""
        while self._works:
            oldest = next(iter(self._works))
            if not self._ended(*self._works[oldest]):
                return
            del self._works[oldest]

    def _ended(self, work: Any, group: Any) -> bool:
        return group not in self._aborted and bool(work.is_completed())


def parts_of(work: Any) -> Iterator[Any]:
    """The works of the backend that ``work`` combines, or itself."""
    if not hasattr(work, "works"):
        yield work
        return
    for part in work.works:
        yield from parts_of(part)
