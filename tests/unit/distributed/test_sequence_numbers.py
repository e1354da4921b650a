"""A joined rank takes part in the collectives that other ranks launched and it did not."""

from __future__ import annotations

from hypothesis import given, strategies as st

from cloudtrain.distributed.negotiation.client import SequenceNumbers


def test_a_position_lists_the_launches_in_flight() -> None:
    sequence = SequenceNumbers()
    assert sequence.position() == {"at": "", "launched": 0, "joins": 0, "in flight": []}
    numbers = [sequence.add(f"bucket {n}", {"n": n}) for n in range(3)]
    assert numbers == [1, 2, 3]
    assert sequence.position() == {
        "at": "bucket 2",
        "launched": 3,
        "joins": 0,
        "in flight": [{"n": 0}, {"n": 1}, {"n": 2}],
    }
    sequence.complete(2)
    assert sequence.position()["in flight"] == [{"n": 2}]
    sequence.complete(1)
    assert sequence.position()["in flight"] == [{"n": 2}], "a late completion removes nothing else"


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_missing_lists_what_the_other_rank_has_launched_since(own: int, more: int, complete: int) -> None:
    """A rank cannot complete a collective that this one has not launched, because this one takes part in it."""
    joined, other = SequenceNumbers(), SequenceNumbers()
    for number in range(own):
        joined.add("", number)
    for number in range(own + more):
        other.add("", number)
    other.complete(min(complete, own))
    assert list(joined.missing(other.position())) == list(range(own, own + more))
    assert list(other.missing(joined.position())) == []


def test_what_a_rank_launches_after_a_join_is_not_missing_on_one_that_still_waits_for_its_end() -> None:
    waiting, ahead = SequenceNumbers(), SequenceNumbers()
    ahead.joins += 1
    ahead.add("the next epoch", "spec")
    assert list(waiting.missing(ahead.position())) == []
    waiting.joins += 1
    assert list(waiting.missing(ahead.position())) == ["spec"], "it has joined again, and launched nothing"
