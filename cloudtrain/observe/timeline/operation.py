"""One recorded operation, from its request to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Callable

now = time.monotonic_ns


class Operation:
    """One operation from its request to its end. Times are nanoseconds of the monotonic clock.

    Args:
        done: called with the operation when it has ended.
        kind: allreduce, allgather, ...
        name: of the tensor or the bucket; may be empty.
        facts: details for readers of the timeline (JSON).
        negotiated: whether the ranks negotiate it.
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
        """When data was copied into its buffer, before the request: pairs of begin and end."""
        self.carrier = ""
        """The data transport: ``GLOO``, ``NCCL``, ``MPI``, ``SHARED_MEMORY``; empty if the negotiation carried the
        data."""
        self.agreed: int | None = None
        """When all ranks had requested it, if it is negotiated."""
        self.began: int | None = None
        """When the transfer began, if known."""
        self.ended: int | None = None
        self.ends_when_waited = False
        """Whether the end is only noticed by waiting for the operation."""
        self.asked = now()

    def end(self, at: int | None = None) -> None:
        """The operation is complete, by default now. A second call does nothing."""
        if self.ended is None:
            self.ended = now() if at is None else at
            self._done(self)

    def fail(self) -> None:
        """The operation failed."""
        self.facts = {**self.facts, "failed": True}
        self.end()
