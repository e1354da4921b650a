"""Finds the operations that all ranks have asked for, and those on which they disagree. Pure state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional

from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    JOIN,
    REMOVE_SET,
    CollectiveRequest,
    CollectiveResponse,
)

STANDS_IN = ("allreduce", "barrier", ADD_SET, REMOVE_SET)
"""What goes on without a rank that has joined: it counts as giving zeros."""

Answer = tuple[int, CollectiveResponse]
"""A rank, and what it is told."""
Combine = Callable[[CollectiveRequest, Sequence[Any], Sequence[Optional[bytes]]], bytes]
"""Computes the result of small data: the request, then `per_rank` and `payload` of every rank."""


@dataclass
class PendingCollective:
    """An operation that not all ranks have asked for yet."""

    since: float
    requests: dict[int, CollectiveRequest] = field(default_factory=dict)
    warned: bool = False

    @property
    def some(self) -> CollectiveRequest:
        return next(iter(self.requests.values()))


class Matcher:
    """What is asked for, by process set and key.

    Args:
        size: the number of ranks.
        combine: computes results where all ranks have sent their data along.
    """

    def __init__(self, size: int, combine: Combine) -> None:
        self._combine = combine
        self._sets: dict[int, list[int]] = {GLOBAL: list(range(size))}
        self._next_set = GLOBAL + 1
        self._entries: dict[tuple[int, str], PendingCollective] = {}
        self._joined: dict[int, None] = {}
        """In the order in which ranks joined."""
        self._gone: dict[int, str] = {}
        """Why a rank will never answer again."""

    def announce(self, rank: int, request: CollectiveRequest, now: float) -> list[Answer]:
        """``rank`` asks for an operation; the answers that follow from it, in the order to send them."""
        if request.kind == JOIN:
            self._joined[rank] = None
        entry = self._entries.setdefault((request.set_id, request.key), PendingCollective(now))
        entry.requests[rank] = request
        if request.kind == JOIN:
            # What waited for this rank alone goes on without it; only then may the join itself be over.
            keys = sorted(self._entries, key=lambda key: key[1] == JOIN)
            return [answer for key in keys for answer in self._settled(key)]
        return self._settled((request.set_id, request.key))

    def leave(self, rank: int, why: str) -> list[Answer]:
        """``rank`` will not answer any more: what waits for it fails, now and later."""
        self._gone.setdefault(rank, why)
        return [answer for key in list(self._entries) for answer in self._settled(key)]

    def overdue(self, before: float) -> list[Answer]:
        """Ends what has waited since ``before`` or longer."""
        keys = [
            key for key, entry in self._entries.items() if entry.since <= before and entry.some.kind != JOIN
        ]
        return [answer for key in keys for answer in self._end(key, f"timed out; {self._who(key)}")]

    def stalled(self, before: float) -> list[str]:
        """One line for each operation that has waited since ``before`` or longer, once."""
        lines = []
        for key, entry in self._entries.items():
            if entry.since <= before and not entry.warned and entry.some.kind != JOIN:
                entry.warned = True
                lines.append(f"{entry.some.label}: {self._who(key)}")
        return lines

    def _settled(self, key: tuple[int, str]) -> list[Answer]:
        entry = self._entries.get(key)
        if entry is None:
            return []
        set_id, _ = key
        members = self._sets.get(set_id, [])
        strangers = [rank for rank in entry.requests if rank not in members]
        if strangers:
            return self._end(key, f"ranks {strangers} are not in process set {set_id}, which has {members}")
        gone = [rank for rank in members if rank in self._gone and rank not in entry.requests]
        if gone:
            return self._end(key, "; ".join(f"rank {rank} {self._gone[rank]}" for rank in gone))
        absent = [rank for rank in members if rank not in entry.requests]
        standing_in = [rank for rank in absent if rank in self._joined]
        if len(standing_in) < len(absent):
            return []
        # Only now: a rank that comes later must hear of it too.
        error = _disagreement(entry.requests)
        if error:
            return self._end(key, error)
        request = entry.some
        if standing_in and request.kind == JOIN:
            return []
        if standing_in and request.kind not in STANDS_IN:
            return self._end(key, f"it cannot go on without ranks {standing_in}, which have joined")
        return self._go(key, entry, members, standing_in)

    def _go(
        self, key: tuple[int, str], entry: PendingCollective, members: list[int], standing_in: list[int]
    ) -> list[Answer]:
        del self._entries[key]
        request = entry.some
        ended: list[Answer] = []
        own: list[Any] = [entry.requests[r].per_rank if r in entry.requests else None for r in members]
        if request.kind == JOIN:
            own = [list(self._joined)[-1], [count for counts in own for count in counts]]
            self._joined.clear()
        elif request.kind == ADD_SET:
            own = [self._add(request.must_match["ranks"])]
        elif request.kind == REMOVE_SET:
            removed = request.must_match["process set"]
            waiting = [key for key in self._entries if key[0] == removed]
            ended = [answer for key in waiting for answer in self._end(key, "its process set was removed")]
            self._sets.pop(removed, None)
        payloads = [entry.requests[r].payload if r in entry.requests else None for r in members]
        response = CollectiveResponse(*key, per_rank=own)
        if all(entry.requests[r].payload is not None for r in entry.requests):
            try:
                response = replace(response, payload=self._combine(request, own, payloads))
            except Exception as error:  # whatever it is, no rank may wait for a result that will not come
                response = replace(response, error=f"{request.label}: {error!r}")
        return ended + [
            (rank, replace(response, request=request) if rank in standing_in else response)
            for rank in members
        ]

    def _add(self, ranks: list[int]) -> int:
        for set_id, known in self._sets.items():
            if known == ranks:
                return set_id
        self._sets[self._next_set] = ranks
        self._next_set += 1
        return self._next_set - 1

    def _end(self, key: tuple[int, str], error: str) -> list[Answer]:
        entry = self._entries.pop(key)
        if entry.some.kind == JOIN:
            for rank in entry.requests:
                self._joined.pop(rank, None)
        response = CollectiveResponse(*key, error=f"{entry.some.label}: {error}")
        return [(rank, response) for rank in entry.requests]

    def _who(self, key: tuple[int, str]) -> str:
        requests = self._entries[key].requests
        absent = [rank for rank in self._sets.get(key[0], []) if rank not in requests]
        return f"ranks {sorted(requests)} have come to it, ranks {absent} have not"


def _disagreement(requests: dict[int, CollectiveRequest]) -> str:
    """In what the ranks differ; empty where they agree."""
    first = next(iter(requests.values()))
    if all(
        request.kind == first.kind and request.must_match == first.must_match for request in requests.values()
    ):
        return ""
    if any(request.kind != first.kind for request in requests.values()):
        return "the ranks disagree in the operation: " + _listed(
            (rank, request.kind) for rank, request in requests.items()
        )
    names = [
        name
        for name in first.must_match
        if any(r.must_match.get(name) != first.must_match[name] for r in requests.values())
    ]
    parts = [
        f"the ranks disagree in {name}: "
        + _listed((rank, r.must_match.get(name)) for rank, r in requests.items())
        for name in names
    ]
    return "; ".join(parts) or "the ranks disagree in what they ask for"


def _listed(values: Iterable[tuple[int, Any]]) -> str:
    return ", ".join(f"rank {rank}: {value}" for rank, value in sorted(values, key=lambda pair: pair[0]))
