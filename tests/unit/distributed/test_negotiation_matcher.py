"""Whatever ranks ask for, and in whatever order: all get the same answers in the same order, and none is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudtrain.distributed.negotiation.matcher import Matcher
from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    JOIN,
    REMOVE_SET,
    CollectiveRequest,
    CollectiveResponse,
)

Answers = list[tuple[int, CollectiveResponse]]


def joined_payloads(
    request: CollectiveRequest, own: Sequence[Any], payloads: Sequence[bytes | None]
) -> bytes:
    return b"|".join(payload or b"-" for payload in payloads)


def matcher_of(size: int) -> Matcher:
    return Matcher(size, joined_payloads)


def asked(name: str, kind: str = "allreduce", **equal: Any) -> CollectiveRequest:
    return CollectiveRequest(kind, f"{kind}:{name}", must_match=equal)


def announce(matcher: Matcher, *calls: tuple[int, CollectiveRequest]) -> Answers:
    """The answers to all calls, each a second after the one before."""
    return [answer for now, call in enumerate(calls) for answer in matcher.announce(*call, now=float(now))]


def by_rank(answers: Iterable[tuple[int, CollectiveResponse]], size: int) -> list[list[CollectiveResponse]]:
    told: list[list[CollectiveResponse]] = [[] for _ in range(size)]
    for rank, verdict in answers:
        told[rank].append(verdict)
    return told


# -- any order


@given(st.integers(1, 5), st.integers(1, 12), st.booleans(), st.randoms(use_true_random=False))
def test_random_orders(size: int, count: int, with_sets: bool, choice: random.Random) -> None:
    """Every rank submits the same operations in an order of its own; some disagree in a shape."""
    matcher = matcher_of(size)
    sets = {GLOBAL: list(range(size))}
    if with_sets and size > 2:
        members = sorted(choice.sample(range(size), 2))
        add = CollectiveRequest(ADD_SET, "add_process_set:s", must_match={"ranks": members})
        [(_, verdict), *_] = announce(matcher, *[(rank, add) for rank in range(size)])
        sets[verdict.per_rank[0]] = members
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
    answers: Answers = []
    while waiting := [rank for rank in queues if queues[rank]]:
        rank = choice.choice(waiting)
        answers += matcher.announce(rank, queues[rank].pop(), now=0.0)
    told = by_rank(answers, size)
    for set_id, members in sets.items():
        orders = [[verdict for verdict in told[rank] if verdict.set_id == set_id] for rank in members]
        assert all(order == orders[0] for order in orders), "one order, and one answer, for all members"
    for rank in range(size):
        wanted = {(set_id, f"allreduce:{name}") for set_id, name, _ in operations if rank in sets[set_id]}
        assert {(verdict.set_id, verdict.key) for verdict in told[rank]} == wanted
        assert len(told[rank]) == len(wanted), "each is answered once"
    odd_ones = {f"allreduce:{name}" for set_id, name, odd in operations if odd and len(sets[set_id]) > 1}
    for verdict in itertools.chain(*told):
        members = sets[verdict.set_id]
        if verdict.key in odd_ones:
            for rank in members:
                assert f"rank {rank}: {rank}" in verdict.error
        else:
            assert not verdict.error
            assert verdict.per_rank == members
            assert verdict.payload == b"|".join(b"%d" % rank for rank in members)
    assert matcher.overdue(before=1.0) == [], "nothing is left"


@given(st.integers(2, 5), st.integers(1, 8), st.data())
def test_a_rank_that_leaves_leaves_nobody_waiting(size: int, count: int, data: st.DataObject) -> None:
    """It asks for some of the operations before: those that all have asked for succeed, all others fail."""
    leaver = data.draw(st.integers(0, size - 1), label="leaver")
    others = [rank for rank in range(size) if rank != leaver]
    calls = [(rank, asked(f"t{number}")) for number in range(count) for rank in others]
    asked_by_leaver = data.draw(st.sets(st.integers(0, count - 1)), label="asked by the leaver")
    calls += [(leaver, asked(f"t{number}")) for number in asked_by_leaver]
    calls = data.draw(st.permutations(calls), label="order")
    leaves_at = data.draw(
        st.integers(max((n for n, (rank, _) in enumerate(calls, 1) if rank == leaver), default=0), len(calls))
    )
    matcher = matcher_of(size)
    answers = announce(matcher, *calls[:leaves_at])
    answers += matcher.leave(leaver, "has died")
    answers += announce(matcher, *calls[leaves_at:])
    told = by_rank(answers, size)
    for rank in others:
        errors = {verdict.key: verdict.error for verdict in told[rank]}
        assert len(told[rank]) == len(errors) == count
        for number in range(count):
            wanted = "" if number in asked_by_leaver else f"allreduce of t{number}: rank {leaver} has died"
            assert errors[f"allreduce:t{number}"] == wanted


@given(st.integers(2, 5), st.randoms(use_true_random=False))
def test_ranks_join_after_steps_of_their_own_number(size: int, choice: random.Random) -> None:
    steps = [choice.randint(0, 4) for _ in range(size)]
    queues = {
        rank: [asked(f"step {step}") for step in range(steps[rank])]
        + [CollectiveRequest(JOIN, JOIN, per_rank=[[GLOBAL, 0]])]
        for rank in range(size)
    }
    matcher, answers, order = matcher_of(size), [], []
    while waiting := [rank for rank in queues if queues[rank]]:
        rank = choice.choice(waiting)
        request = queues[rank].pop(0)
        if request.kind == JOIN:
            order.append(rank)
        answers += matcher.announce(rank, request, now=0.0)
    told = by_rank(answers, size)
    for rank in range(size):
        verdicts = {verdict.key: verdict for verdict in told[rank]}
        assert len(verdicts) == len(told[rank]) == max(steps) + 1
        assert verdicts[JOIN].per_rank[0] == order[-1]
        for step in range(max(steps)):
            verdict = verdicts[f"allreduce:step {step}"]
            assert not verdict.error
            assert (verdict.request is not None) == (step >= steps[rank]), "told what to take part in"
    assert matcher.overdue(before=1.0) == []


# -- what ranks disagree in


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
def test_disagreement_reaches_all_and_says_what_each_asked_for(
    first: dict[str, Any], second: dict[str, Any], error: str
) -> None:
    answers = announce(matcher_of(2), (0, asked("t", **first)), (1, asked("t", **second)))
    assert [rank for rank, _ in answers] == [0, 1]
    assert all(error in verdict.error for _, verdict in answers), answers


def test_unnamed_operations_of_two_kinds() -> None:
    answers = announce(
        matcher_of(2),
        (1, CollectiveRequest("allgather", "noname.0")),
        (0, CollectiveRequest("allreduce", "noname.0")),
    )
    assert {verdict.error for _, verdict in answers} == {
        "allgather of noname.0: the ranks disagree on the operation: rank 0: allreduce, rank 1: allgather"
    }


def test_a_name_is_free_again_after_a_disagreement() -> None:
    matcher = matcher_of(2)
    announce(matcher, (0, asked("t", shape=1)), (1, asked("t", shape=2)))
    answers = announce(matcher, (1, asked("t", shape=1)), (0, asked("t", shape=1)))
    assert [(rank, verdict.error) for rank, verdict in answers] == [(0, ""), (1, "")]


# -- joined ranks


def test_what_cannot_go_on_without_a_rank_that_has_joined() -> None:
    matcher = matcher_of(3)
    join = CollectiveRequest(JOIN, JOIN, per_rank=[])
    calls = [(2, join), (0, asked("t", "allgather")), (1, asked("t", "allgather"))]
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
    assert [rank for rank, verdict in announce(matcher, (0, join), (1, join)) if not verdict.error] == [
        0,
        1,
        2,
    ]


def test_joining_settles_what_waited_for_that_rank_alone() -> None:
    matcher = matcher_of(2)
    assert announce(matcher, (0, asked("t"))) == []
    answers = announce(matcher, (1, CollectiveRequest(JOIN, JOIN, per_rank=[])))
    assert [(rank, verdict.key, verdict.request is not None) for rank, verdict in answers] == [
        (0, "allreduce:t", False),
        (1, "allreduce:t", True),
    ]


# -- process sets


def test_a_set_is_known_from_when_all_have_added_it_until_all_have_removed_it() -> None:
    matcher = matcher_of(3)
    add = CollectiveRequest(ADD_SET, "add_process_set:0-2", must_match={"ranks": [0, 2]})
    remove = CollectiveRequest(REMOVE_SET, "remove_process_set:1", must_match={"process set": 1})
    inside = CollectiveRequest("allreduce", "allreduce:t", set_id=1)
    assert [verdict.per_rank for _, verdict in announce(matcher, (0, add), (1, add), (2, add))] == [[1]] * 3
    assert [rank for rank, _ in announce(matcher, (2, inside), (0, inside))] == [0, 2]
    [(stranger, verdict)] = announce(matcher, (1, inside))
    assert (stranger, verdict.error) == (
        1,
        "allreduce of t: ranks [1] are not in process set 1, which has [0, 2]",
    )
    assert len(announce(matcher, (0, remove), (1, remove), (2, remove))) == 3
    [(_, verdict)] = announce(matcher, (0, inside))
    assert "process set 1" in verdict.error
    assert announce(matcher, (0, add), (1, add), (2, add))[0][1].per_rank == [2], (
        "a number is never used twice"
    )


# -- time


def test_what_waits_too_long_is_told_once_and_then_ends() -> None:
    matcher = matcher_of(3)
    matcher.announce(2, asked("late"), now=10.0)
    matcher.announce(0, asked("late"), now=12.0)
    matcher.announce(1, CollectiveRequest(JOIN, JOIN, per_rank=[]), now=0.0)
    matcher.announce(0, asked("t", "allgather"), now=11.0)
    assert matcher.stalled(before=5.0) == [], "join may take as long as it takes"
    assert matcher.stalled(before=11.0) == ["allgather of t: ranks [0] have called it, ranks [1, 2] have not"]
    assert matcher.stalled(before=11.0) == []
    assert matcher.overdue(before=9.0) == []
    [(rank, verdict)] = matcher.overdue(before=11.0)
    assert (rank, verdict.error) == (
        0,
        "allgather of t: timed out; ranks [0] have called it, ranks [1, 2] have not",
    )
    assert matcher.overdue(before=11.0) == []
