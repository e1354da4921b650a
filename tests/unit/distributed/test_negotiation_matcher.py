"""For any requests in any order, all ranks get the same responses in the same order, and none is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from cloudtrain.distributed.negotiation.matcher import Matcher
from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    JOIN,
    REMOVE_SET,
    CollectiveRequest,
    CollectiveResponse,
)

Responses = list[tuple[int, CollectiveResponse]]


def joined_payloads(must_match: dict[str, Any], payloads: Sequence[bytes | None]) -> bytes:
    return b"|".join(payload or b"-" for payload in payloads)


def matcher_of(size: int) -> Matcher:
    return Matcher(size, joined_payloads)


def request_of(name: str, kind: str = "allreduce", **equal: Any) -> CollectiveRequest:
    return CollectiveRequest(kind, f"{kind}:{name}", must_match=equal)


def announce(matcher: Matcher, *calls: tuple[int, CollectiveRequest]) -> Responses:
    """The responses to all calls, which are one second apart."""
    return [
        response for now, call in enumerate(calls) for response in matcher.announce(*call, now=float(now))
    ]


def by_rank(responses: Iterable[tuple[int, CollectiveResponse]], size: int) -> list[list[CollectiveResponse]]:
    received: list[list[CollectiveResponse]] = [[] for _ in range(size)]
    for rank, response in responses:
        received[rank].append(response)
    return received


# -- any order


@given(st.integers(1, 5), st.integers(1, 12), st.booleans(), st.randoms(use_true_random=False))
def test_random_orders(size: int, count: int, with_sets: bool, choice: random.Random) -> None:
    """Every rank submits the same operations in a different order; some disagree on a shape."""
    matcher = matcher_of(size)
    sets = {GLOBAL: list(range(size))}
    if with_sets and size > 2:
        members = sorted(choice.sample(range(size), 2))
        add = CollectiveRequest(ADD_SET, "add_process_set:s", must_match={"ranks": members})
        [(_, response), *_] = announce(matcher, *[(rank, add) for rank in range(size)])
        sets[response.per_rank[0]] = members
    operations = [(choice.choice(list(sets)), f"t{number}", choice.random() < 0.3) for number in range(count)]
    queues: dict[int, list[CollectiveRequest]] = {rank: [] for rank in range(size)}
    for set_id, name, odd in operations:
        for rank in sets[set_id]:
            shape = rank if odd else 0
            queues[rank].append(
                CollectiveRequest(
                    "allreduce",
                    f"allreduce:{name}",
                    set_id,
                    {"shape": shape},
                    per_rank=rank,
                    payload=b"%d" % rank,
                )
            )
    for queue in queues.values():
        choice.shuffle(queue)
    responses: Responses = []
    while waiting := [rank for rank in queues if queues[rank]]:
        rank = choice.choice(waiting)
        responses += matcher.announce(rank, queues[rank].pop(), now=0.0)
    received = by_rank(responses, size)
    for set_id, members in sets.items():
        orders = [[response for response in received[rank] if response.set_id == set_id] for rank in members]
        assert all(order == orders[0] for order in orders), (
            "all members get the same responses in the same order"
        )
    for rank in range(size):
        wanted = {(set_id, f"allreduce:{name}") for set_id, name, _ in operations if rank in sets[set_id]}
        assert {(response.set_id, response.key) for response in received[rank]} == wanted
        assert len(received[rank]) == len(wanted), "each gets one response"
    odd_ones = {f"allreduce:{name}" for set_id, name, odd in operations if odd and len(sets[set_id]) > 1}
    for response in itertools.chain(*received):
        members = sets[response.set_id]
        if response.key in odd_ones:
            for rank in members:
                assert f"rank {rank}: {rank}" in response.error
        else:
            assert not response.error
            assert response.per_rank == members
            assert response.payload == b"|".join(b"%d" % rank for rank in members)
    assert matcher.overdue(before=1.0) == [], "nothing is left"


@given(st.integers(2, 5), st.integers(1, 8), st.data())
def test_no_rank_waits_for_one_that_left(size: int, count: int, data: st.DataObject) -> None:
    """It requested some operations before it left: those that all ranks requested succeed, the others fail."""
    leaver = data.draw(st.integers(0, size - 1), label="leaver")
    others = [rank for rank in range(size) if rank != leaver]
    calls = [(rank, request_of(f"t{number}")) for number in range(count) for rank in others]
    requested_by_leaver = data.draw(st.sets(st.integers(0, count - 1)), label="requested by the leaver")
    calls += [(leaver, request_of(f"t{number}")) for number in requested_by_leaver]
    calls = data.draw(st.permutations(calls), label="order")
    leaves_at = data.draw(
        st.integers(max((n for n, (rank, _) in enumerate(calls, 1) if rank == leaver), default=0), len(calls))
    )
    matcher = matcher_of(size)
    responses = announce(matcher, *calls[:leaves_at])
    responses += matcher.leave(leaver, "has died")
    responses += announce(matcher, *calls[leaves_at:])
    received = by_rank(responses, size)
    for rank in others:
        errors = {response.key: response.error for response in received[rank]}
        assert len(received[rank]) == len(errors) == count
        for number in range(count):
            wanted = (
                "" if number in requested_by_leaver else f"allreduce of t{number}: rank {leaver} has died"
            )
            assert errors[f"allreduce:t{number}"] == wanted


@given(st.integers(2, 5), st.randoms(use_true_random=False))
def test_ranks_join_after_different_numbers_of_steps(size: int, choice: random.Random) -> None:
    steps = [choice.randint(0, 4) for _ in range(size)]
    queues = {
        rank: [request_of(f"step {step}") for step in range(steps[rank])]
        + [CollectiveRequest(JOIN, JOIN, per_rank=[[GLOBAL, 0]])]
        for rank in range(size)
    }
    matcher, responses, order = matcher_of(size), [], []
    while waiting := [rank for rank in queues if queues[rank]]:
        rank = choice.choice(waiting)
        request = queues[rank].pop(0)
        if request.kind == JOIN:
            order.append(rank)
        responses += matcher.announce(rank, request, now=0.0)
    received = by_rank(responses, size)
    for rank in range(size):
        by_key = {response.key: response for response in received[rank]}
        assert len(by_key) == len(received[rank]) == max(steps) + 1
        assert by_key[JOIN].per_rank[0] == order[-1]
        for step in range(max(steps)):
            response = by_key[f"allreduce:step {step}"]
            assert not response.error
            assert (response.request is not None) == (step >= steps[rank]), (
                "the response carries the request only for joined ranks"
            )
    assert matcher.overdue(before=1.0) == []


# -- disagreements


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (
            {"shape": [2]},
            {"shape": [3]},
            "allreduce of t: the ranks disagree on shape: rank 0: [2], rank 1: [3]",
        ),
        (
            {"shape": [2], "type": "float32"},
            {"shape": [3], "type": "int64"},
            "the ranks disagree on shape: rank 0: [2], rank 1: [3]; "
            "the ranks disagree on type: rank 0: float32, rank 1: int64",
        ),
        ({"shape": [2]}, {}, "the ranks disagree on shape: rank 0: [2], rank 1: None"),
        ({}, {"shape": [2]}, "the ranks disagree on their requests"),
    ],
)
def test_a_disagreement_reaches_all_ranks_with_every_request(
    first: dict[str, Any], second: dict[str, Any], error: str
) -> None:
    responses = announce(matcher_of(2), (0, request_of("t", **first)), (1, request_of("t", **second)))
    assert [rank for rank, _ in responses] == [0, 1]
    assert all(error in response.error for _, response in responses), responses


def test_ranks_agree_on_a_factor_that_is_nan() -> None:
    matcher = matcher_of(2)
    calls = [(rank, request_of("t", prescale_factor=float("nan"))) for rank in range(2)]
    assert [response.error for _, response in announce(matcher, *calls)] == ["", ""]
    calls = [(rank, request_of("u", prescale_factor=value)) for rank, value in enumerate([float("nan"), 1.0])]
    errors = {response.error for _, response in announce(matcher, *calls)}
    assert errors == {"allreduce of u: the ranks disagree on prescale_factor: rank 0: nan, rank 1: 1.0"}


def test_unnamed_operations_of_two_kinds() -> None:
    responses = announce(
        matcher_of(2),
        (1, CollectiveRequest("allgather", "noname.0")),
        (0, CollectiveRequest("allreduce", "noname.0")),
    )
    assert {response.error for _, response in responses} == {
        "allgather of noname.0: the ranks disagree on the operation: rank 0: allreduce, rank 1: allgather"
    }


def test_a_name_is_free_again_after_a_disagreement() -> None:
    matcher = matcher_of(2)
    announce(matcher, (0, request_of("t", shape=1)), (1, request_of("t", shape=2)))
    responses = announce(matcher, (1, request_of("t", shape=1)), (0, request_of("t", shape=1)))
    assert [(rank, response.error) for rank, response in responses] == [(0, ""), (1, "")]


# -- joined ranks


def test_operations_that_need_the_joined_ranks() -> None:
    matcher = matcher_of(3)
    join = CollectiveRequest(JOIN, JOIN, per_rank=[])
    calls = [(2, join), (0, request_of("t", "allgather")), (1, request_of("t", "allgather"))]
    assert announce(matcher, *calls) == [
        (
            rank,
            CollectiveResponse(
                GLOBAL,
                "allgather:t",
                "allgather of t: it needs ranks [2], which have joined",
            ),
        )
        for rank in (0, 1)
    ]
    assert [rank for rank, response in announce(matcher, (0, join), (1, join)) if not response.error] == [
        0,
        1,
        2,
    ]


def test_joining_starts_operations_that_waited_for_that_rank() -> None:
    matcher = matcher_of(2)
    assert announce(matcher, (0, request_of("t"))) == []
    responses = announce(matcher, (1, CollectiveRequest(JOIN, JOIN, per_rank=[])))
    assert [(rank, response.key, response.request is not None) for rank, response in responses] == [
        (0, "allreduce:t", False),
        (1, "allreduce:t", True),
    ]


# -- process sets


def test_a_set_exists_from_the_last_add_to_the_last_remove() -> None:
    matcher = matcher_of(3)
    add = CollectiveRequest(ADD_SET, "add_process_set:0-2", must_match={"ranks": [0, 2]})
    remove = CollectiveRequest(REMOVE_SET, "remove_process_set:1", must_match={"process set": 1})
    inside = CollectiveRequest("allreduce", "allreduce:t", set_id=1)
    assert [response.per_rank for _, response in announce(matcher, (0, add), (1, add), (2, add))] == [[1]] * 3
    assert [rank for rank, _ in announce(matcher, (2, inside), (0, inside))] == [0, 2]
    [(stranger, response)] = announce(matcher, (1, inside))
    assert (stranger, response.error) == (
        1,
        "allreduce of t: ranks [1] are not in process set 1, which has [0, 2]",
    )
    assert len(announce(matcher, (0, remove), (1, remove), (2, remove))) == 3
    [(_, response)] = announce(matcher, (0, inside))
    assert "process set 1" in response.error
    assert announce(matcher, (0, add), (1, add), (2, add))[0][1].per_rank == [2], "IDs are not reused"


# -- time


def test_a_waiting_operation_is_reported_once_and_then_fails() -> None:
    matcher = matcher_of(3)
    matcher.announce(2, request_of("late"), now=10.0)
    matcher.announce(0, request_of("late"), now=12.0)
    matcher.announce(1, CollectiveRequest(JOIN, JOIN, per_rank=[]), now=0.0)
    matcher.announce(0, request_of("t", "allgather"), now=11.0)
    assert matcher.stalled(before=5.0) == [], "join has no timeout"
    assert matcher.stalled(before=11.0) == ["allgather of t: ranks [0] have called it, ranks [1, 2] have not"]
    assert matcher.stalled(before=11.0) == []
    assert matcher.overdue(before=9.0) == []
    [(rank, response)] = matcher.overdue(before=11.0)
    assert (rank, response.error) == (
        0,
        "allgather of t: timed out; ranks [0] have called it, ranks [1, 2] have not",
    )
    assert matcher.overdue(before=11.0) == []
