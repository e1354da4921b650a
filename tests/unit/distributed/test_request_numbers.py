"""Requests that repeat are sent as numbers; the responses are those that the whole requests would get."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloudtrain.distributed.negotiation.matcher import Matcher
from cloudtrain.distributed.negotiation.messages import (
    GLOBAL,
    JOIN,
    MOST_NUMBERS,
    NUMBERS,
    AssignedNumbers,
    CollectiveRequest,
    CollectiveResponse,
    KnownNumbers,
    Unpacker,
    pack_number,
    pack_numbers,
    pack_request,
    pack_response,
    unpack_request,
    unpack_response,
)


def request_of(name: str, kind: str = "allreduce", **must_match: Any) -> CollectiveRequest:
    return CollectiveRequest(kind, f"{kind}:{name}", must_match=must_match)


class _Ranks:
    """Ranks and their coordinator, connected by the bytes that they would send."""

    def __init__(self, size: int, numbered: bool = True) -> None:
        self.matcher = Matcher(size, lambda _, payloads: b"+".join(filter(None, payloads)))
        self.known = [KnownNumbers() for _ in range(size)]
        self.received: list[list[CollectiveResponse]] = [[] for _ in range(size)]
        self.sent = 0
        self._numbered = numbered

    def request(self, rank: int, request: CollectiveRequest) -> None:
        packed = self.known[rank].pack(request) if self._numbered else pack_request(request)
        self.sent += len(packed)
        [(kind, content, payload)] = Unpacker().feed(packed)
        if kind == NUMBERS:
            [number] = content
            request = self.matcher.numbers.request(number, payload)
        else:
            request = unpack_request(content, payload)
        for to, response in self.matcher.announce(rank, request, 0.0):
            self._respond(to, pack_response(response))

    def _respond(self, rank: int, packed: bytes) -> None:
        self.sent += len(packed)
        [(kind, content, payload)] = Unpacker().feed(packed)
        if kind == NUMBERS:
            self.received[rank] += self.known[rank].responses(content, payload)
        else:
            response = unpack_response(content, payload)
            self.known[rank].learn(response)
            self.received[rank].append(response)

    def all_request(self, request: CollectiveRequest) -> int:
        """The bytes that all ranks and the coordinator send for it."""
        before = self.sent
        for rank in range(len(self.received)):
            self.request(rank, request)
        return self.sent - before

    def outcomes(self) -> list[list[tuple[str, str, Any]]]:
        return [[(each.key, each.error, each.per_rank) for each in received] for received in self.received]


def test_a_request_that_repeats_is_a_number() -> None:
    ranks = _Ranks(3)
    request = request_of("weights", shape=[513], type="float64")
    first, second, third = (ranks.all_request(request) for _ in range(3))
    assert third == 3 * 2 * len(pack_numbers([0])) == 72
    assert first > 5 * third
    assert second > third, "the second response has the number"
    assert [len(received) for received in ranks.received] == [3] * 3


def test_a_request_that_repeats_with_other_data_is_a_number_and_the_data() -> None:
    ranks = _Ranks(2)
    for step in range(4):
        before = ranks.sent
        for rank in range(2):
            ranks.request(rank, request_of("loss", shape=[1]).with_data(b"%d of %d" % (step, rank)))
        assert [received[-1].payload for received in ranks.received] == [
            b"%d of 0+%d of 1" % (step, step)
        ] * 2
    assert ranks.sent - before == 2 * len(pack_number(0, b"3 of 0")) + 2 * len(
        pack_number(0, b"3 of 0+3 of 1")
    )
    ranks.request(0, request_of("loss", shape=[1]).with_data(b""))
    ranks.request(1, request_of("loss", shape=[1]))
    assert [received[-1].payload for received in ranks.received] == [None] * 2, (
        "not all ranks have sent their data"
    )


def test_another_shape_is_another_request() -> None:
    ranks = _Ranks(2)
    for shape in [[1]] * 3 + [[2]] * 3 + [[1]]:
        sent = ranks.all_request(request_of("t", shape=shape))
    assert sent == 2 * 2 * len(pack_numbers([0])), "the first one is known still"
    ranks.request(0, request_of("t", shape=[1]))
    ranks.request(1, request_of("t", shape=[2]))
    assert {received[-1].error for received in ranks.received} == {
        "allreduce of t: the ranks disagree on shape: rank 0: [1], rank 1: [2]"
    }


def test_a_joined_rank_gets_the_operation() -> None:
    ranks = _Ranks(2)
    request = request_of("t", shape=[4])
    for _ in range(3):
        ranks.all_request(request)
    ranks.request(1, CollectiveRequest(JOIN, JOIN, per_rank=[]))
    ranks.request(0, request)
    [*_, message] = ranks.received[1]
    assert message.request is not None
    assert (message.request.kind, message.request.must_match) == ("allreduce", {"shape": [4]})


def test_a_number_assigned_while_a_rank_had_joined() -> None:
    """While it has joined, it does not send the request. Later it learns the number, and mixes it up with no other."""
    ranks = _Ranks(2)
    full, rest, join = (
        request_of("t", shape=[64]),
        request_of("t", shape=[7]),
        CollectiveRequest(JOIN, JOIN, per_rank=[]),
    )

    def epoch(*batches: CollectiveRequest) -> None:
        """Rank 1 has one batch fewer than rank 0."""
        for batch in batches[:-1]:
            ranks.all_request(batch)
        ranks.request(1, join)
        ranks.request(0, batches[-1])
        ranks.request(0, join)

    for batches in ([full], [full], [rest], [full, rest], [full, rest]):
        epoch(*batches)
    assert ranks.all_request(full) == 2 * 2 * len(pack_numbers([0])), "rank 1 has learned the number, too"
    assert [response.error for received in ranks.received for response in received if response.error] == []


@pytest.mark.parametrize(
    "request_",
    [
        CollectiveRequest("allreduce", "noname.1"),
        CollectiveRequest("allgather", "allgather:rows", per_rank=[3]),
    ],
    ids=["without a name", "with sizes"],
)
def test_what_has_no_number(request_: CollectiveRequest) -> None:
    ranks = _Ranks(2)
    assert len({ranks.all_request(request_) for _ in range(4)}) == 1


def test_names_that_occur_once_use_up_no_numbers() -> None:
    assigned = AssignedNumbers()
    for step in range(2 * MOST_NUMBERS):
        assert assigned.of(request_of(f"loss at step {step}")) == (None, False)
    weights = request_of("weights")
    assert [assigned.of(weights) for _ in range(3)] == [(None, False), (0, False), (0, True)]


def test_there_is_a_limit() -> None:
    assigned = AssignedNumbers()
    for name in range(MOST_NUMBERS):
        assigned.of(request_of(str(name)))
        assigned.of(request_of(str(name)))
    assert assigned.request(MOST_NUMBERS - 1).label == f"allreduce of {MOST_NUMBERS - 1}"
    assert [assigned.of(request_of("another")) for _ in range(3)] == [(None, False)] * 3


def test_unknown_numbers() -> None:
    with pytest.raises(ValueError, match="there is no request 0"):
        AssignedNumbers().request(0)
    with pytest.raises(ValueError, match=r"there are no requests \[7\]"):
        KnownNumbers().responses([7])
    for length in (0, 3, 5):
        with pytest.raises(ValueError, match="not a list of numbers"):
            list(Unpacker().feed(bytes(4) + length.to_bytes(4, "big") + bytes(length)))


@given(
    st.integers(2, 4), st.integers(1, 5), st.integers(1, 25), st.booleans(), st.randoms(use_true_random=False)
)
def test_the_same_responses_as_without_numbers(
    size: int, names: int, count: int, joins: bool, choice: random.Random
) -> None:
    """Names repeat, some with another shape, some with shapes that differ; ranks join and come back."""
    steps: list[list[CollectiveRequest]] = []
    for _ in range(count):
        shapes = [choice.randrange(2)] * size
        if choice.random() < 0.1:
            shapes[choice.randrange(size)] += 1
        name = str(choice.randrange(names))
        steps.append([request_of(name, shape=shape) for shape in shapes])
    calls: list[tuple[int, CollectiveRequest]] = []
    away = choice.randrange(size) if joins else None
    leaves, join = choice.randrange(count), CollectiveRequest(JOIN, JOIN, per_rank=[[GLOBAL, 0]])
    for number, step in enumerate(steps):
        order = [rank for rank in range(size) if rank != away or number < leaves]
        choice.shuffle(order)
        if number == leaves and away is not None:
            calls.append((away, join))
        calls += [(rank, step[rank]) for rank in order]
    calls += [(rank, join) for rank in range(size) if rank != away and joins]
    calls += [(rank, step[rank]) for step in steps for rank in range(size)]
    numbered, plain = _Ranks(size), _Ranks(size, numbered=False)
    for call in calls:
        numbered.request(*call)
        plain.request(*call)
    assert numbered.outcomes() == plain.outcomes()
    assert numbered.sent <= plain.sent + 2 * 8 * sum(map(len, plain.received)), "the numbers in the responses"


def _steps(calls: Iterable[tuple[int, CollectiveRequest]], matcher: Matcher) -> int:
    """The bytecodes that the matcher executes for ``calls``."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for rank, request in calls:
            matcher.announce(rank, request, 0.0)
    finally:
        sys.settrace(before)
    return count


def test_a_request_costs_the_same_among_many_ranks() -> None:
    """Each request once took a look at all ranks: 17 ms for one operation of 128 ranks."""
    cost = {}
    for size in (8, 128):
        calls = [(rank, request_of("t", shape=[513])) for rank in range(size)]
        cost[size] = _steps(calls, Matcher(size, lambda *_: b"")) / size
    assert cost[128] < cost[8]
