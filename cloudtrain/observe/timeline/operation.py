"""One recorded operation, from its request to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Callable

now = time.monotonic_ns


class Operation:
    """One operation from when it is asked for to its end. Times are those of the steady clock, in ns.

    Args:
        done: takes the operation once it has ended.
        kind: allreduce, allgather, ...
        name: of the tensor or the bucket; empty where it has none.
        facts: what a reader may want to know of it (JSON).
        negotiated: whether the ranks ask each other for it.
    """

    __slots__ = (
        "_done",
        "agreed",
        "asked",
        "began",
        "carrier",
        "copies",
        "ended",
        "ends_when_waited",
        "facts",
        "kind",
        "name",
        "negotiated",
    )

    def __init__(
        self,
        done: Callable[[Operation], None],
        kind: str,
        name: str,
        facts: Mapping[str, Any],
        negotiated: bool,
    ) -> None:
        self._done = done
        self.negotiated = negotiated
        self.kind, self.name, self.facts = kind, name, facts
        self.copies: list[tuple[int, int]] = []
        """When data was copied to its buffer, before it was asked for."""
        self.carrier = ""
        """What carried the data: ``GLOO``, ``NCCL``, ``MPI``, ``SHARED_MEMORY``; empty where it went along with the
        request."""
        self.agreed: int | None = None
        """When all ranks had come, where they have to."""
        self.began: int | None = None
        """When the data began to travel, where that is known."""
        self.ended: int | None = None
        self.ends_when_waited = False
        """Whether nobody but who waits for it knows of the end."""
        self.asked = now()

    def end(self) -> None:
        """All data is there. A second call does nothing."""
        if self.ended is None:
            self.ended = now()
            self._done(self)

    def fail(self) -> None:
        """It has ended in an error."""
        self.facts = {**self.facts, "failed": True}
        self.end()
