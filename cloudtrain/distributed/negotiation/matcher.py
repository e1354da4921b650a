"""Matches the requests of all ranks, and finds the operations on which they disagree. State only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional

from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    JOIN,
    OPEN_LAYER_GROUP,
    REMOVE_SET,
    AssignedNumbers,
    CollectiveRequest,
    CollectiveResponse,
)

WITHOUT_JOINED = ("allreduce", "barrier", ADD_SET, REMOVE_SET, OPEN_LAYER_GROUP)
"""The operations that run without joined ranks, which contribute zeros."""

RankResponse = tuple[int, CollectiveResponse]
"""A rank, and the response to it."""
Combine = Callable[[dict[str, Any], Sequence[Optional[bytes]]], bytes]
"""Reduces small data, given the `must_match` of the request and the `payload` of every rank; that of a rank that has
joined is None, and counts as zeros."""


@dataclass
class PendingCollective:
    """An operation that not all ranks have requested yet."""

    since: float
    missing: set[int]
    """The ranks of the process set that have neither requested it nor joined."""
    requests: dict[int, CollectiveRequest] = field(default_factory=dict)
    warned: bool = False

    @property
    def request(self) -> CollectiveRequest:
        return next(iter(self.requests.values()))


class Matcher:
    """Holds requests by process set and key until all ranks have sent one.

    Args:
        size: the number of ranks.
        combine: reduces the data of an allreduce that all ranks sent with the request.
    """

    def __init__(self, size: int, combine: Combine) -> None:
        self._combine = combine
        self._sets: dict[int, list[int]] = {GLOBAL: list(range(size))}
        self.numbers = AssignedNumbers()
        self._next_set = GLOBAL + 1
        self._pending: dict[tuple[int, str], PendingCollective] = {}
        self._joined: dict[int, None] = {}
        """In the order in which ranks joined."""
        self._gone: dict[int, str] = {}
        """Ranks that ended, with the reason."""

    def announce(self, rank: int, request: CollectiveRequest, now: float) -> list[RankResponse]:
        """Take the request of ``rank``. Returns the responses that follow from it, in the order to send them."""
        key = (request.set_id, request.key)
        pending = self._pending.get(key)
        if pending is None:
            missing = set(self._sets.get(request.set_id, ())).difference(self._joined)
            pending = self._pending[key] = PendingCollective(now, missing)
        pending.requests[rank] = request
        if request.kind == JOIN:
            self._joined[rank] = None
            for other in self._pending.values():
                other.missing.discard(rank)
            # Operations that waited only for this rank run without it; after that the join itself may be complete.
            keys = sorted(self._pending, key=lambda key: key[1] == JOIN)
            return [response for key in keys for response in self._settle(key)]
        if rank in pending.missing:
            pending.missing.remove(rank)
            if pending.missing and not self._gone:
                return []
        return self._settle(key)

    def leave(self, rank: int, why: str) -> list[RankResponse]:
        """``rank`` ended: every operation that waits for it fails, now and later."""
        self._gone.setdefault(rank, why)
        return [response for key in list(self._pending) for response in self._settle(key)]

    def overdue(self, before: float) -> list[RankResponse]:
        """Fail the operations that have waited since ``before`` or longer."""
        keys = [key for key, op in self._pending.items() if op.since <= before and op.request.kind != JOIN]
        return [response for key in keys for response in self._fail(key, f"timed out; {self._callers(key)}")]

    def stalled(self, before: float) -> list[str]:
        """One line for each operation that has waited since ``before`` or longer; each is reported once."""
        lines = []
        for key, op in self._pending.items():
            if op.since <= before and not op.warned and op.request.kind != JOIN:
                op.warned = True
                lines.append(f"{op.request.label}: {self._callers(key)}")
        return lines

    def _settle(self, key: tuple[int, str]) -> list[RankResponse]:
        """The responses to an operation if it can start or must fail now; otherwise none."""
        op = self._pending.get(key)
        if op is None:
            return []
        set_id, _ = key
        members = self._sets.get(set_id, [])
        inside = set(members)
        outsiders = [rank for rank in op.requests if rank not in inside]
        if outsiders:
            return self._fail(key, f"ranks {outsiders} are not in process set {set_id}, which has {members}")
        gone = [rank for rank in members if rank in self._gone and rank not in op.requests]
        if gone:
            return self._fail(key, "; ".join(f"rank {rank} {self._gone[rank]}" for rank in gone))
        absent = [rank for rank in members if rank not in op.requests]
        joined = [rank for rank in absent if rank in self._joined]
        if len(joined) < len(absent):
            return []
        # Compared only once all ranks have sent a request, because the last one must receive the error, too.
        error = _disagreement(op.requests)
        if error:
            return self._fail(key, error)
        request = op.request
        if joined and request.kind == JOIN:
            return []
        if joined and request.kind not in WITHOUT_JOINED:
            return self._fail(key, f"it needs ranks {joined}, which have joined")
        return self._start(key, op, members, joined)

    def _start(
        self, key: tuple[int, str], op: PendingCollective, members: list[int], joined: list[int]
    ) -> list[RankResponse]:
        del self._pending[key]
        request = op.request
        failed: list[RankResponse] = []
        per_rank: list[Any] = []
        if any(given.per_rank is not None for given in op.requests.values()):
            per_rank = [op.requests[r].per_rank if r in op.requests else None for r in members]
        if request.kind == JOIN:
            per_rank = [list(self._joined)[-1], [count for counts in per_rank for count in counts]]
            self._joined.clear()
        elif request.kind == ADD_SET:
            per_rank = [self._add_set(request.must_match["ranks"])]
        elif request.kind == REMOVE_SET:
            removed = request.must_match["process set"]
            waiting = [key for key in self._pending if key[0] == removed]
            failed = [
                response for key in waiting for response in self._fail(key, "its process set was removed")
            ]
            self._sets.pop(removed, None)
        given = [each.payload for each in op.requests.values()]
        number, known, payload, error = None, False, None, ""
        if not per_rank and (None not in given or given.count(None) == len(given)):
            number, known = self.numbers.of(request)
        if None not in given:
            payloads = [op.requests[r].payload if r in op.requests else None for r in members]
            try:
                payload = self._result(request, payloads)
            except Exception as raised:  # any error: no rank may wait for a result that will not arrive
                error = f"{request.label}: {raised!r}"
        response = CollectiveResponse(*key, error, per_rank, None, payload, number, known)
        to_joined = replace(response, request=request) if joined else response
        return failed + [(rank, response if rank in op.requests else to_joined) for rank in members]

    def _result(self, request: CollectiveRequest, payloads: Sequence[bytes | None]) -> bytes:
        if request.kind == "allreduce":
            return self._combine(request.must_match, payloads)
        return b"".join(payload or b"" for payload in payloads)  # in a broadcast, only the root has data

    def _add_set(self, ranks: list[int]) -> int:
        for set_id, known in self._sets.items():
            if known == ranks:
                return set_id
        self._sets[self._next_set] = ranks
        self._next_set += 1
        return self._next_set - 1

    def _fail(self, key: tuple[int, str], error: str) -> list[RankResponse]:
        op = self._pending.pop(key)
        if op.request.kind == JOIN:
            for rank in op.requests:
                self._joined.pop(rank, None)
        response = CollectiveResponse(*key, error=f"{op.request.label}: {error}")
        return [(rank, response) for rank in op.requests]

    def _callers(self, key: tuple[int, str]) -> str:
        requests = self._pending[key].requests
        absent = [rank for rank in self._sets.get(key[0], []) if rank not in requests]
        return f"ranks {sorted(requests)} have called it, ranks {absent} have not"


def _disagreement(requests: dict[int, CollectiveRequest]) -> str:
    """How the requests differ; empty if they agree."""
    first = next(iter(requests.values()))
    if all(
        request is first or (request.kind == first.kind and request.must_match == first.must_match)
        for request in requests.values()
    ):
        return ""
    if any(request.kind != first.kind for request in requests.values()):
        return "the ranks disagree on the operation: " + _listed(
            (rank, request.kind) for rank, request in requests.items()
        )
    names = [
        name
        for name in first.must_match
        if not all(_equal(r.must_match.get(name), first.must_match[name]) for r in requests.values())
    ]
    parts = [
        f"the ranks disagree on {name}: "
        + _listed((rank, r.must_match.get(name)) for rank, r in requests.items())
        for name in names
    ]
    if parts or all(request.must_match.keys() == first.must_match.keys() for request in requests.values()):
        return "; ".join(parts)
    return "the ranks disagree on their requests"


def _equal(one: Any, other: Any) -> bool:
    """Equality for which nan equals nan, because a factor may be nan."""
    return bool(one == other or (one != one and other != other))


def _listed(values: Iterable[tuple[int, Any]]) -> str:
    return ", ".join(f"rank {rank}: {value}" for rank, value in sorted(values, key=lambda pair: pair[0]))
