"""What a rank that has joined has to take part in: what others have launched and it has not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloudtrain.distributed.negotiation.client import Launches


def test_a_place_tells_what_is_under_way() -> None:
    launches = Launches()
    assert launches.place() == {"at": "", "launched": 0, "under way": []}
    numbers = [launches.add(f"bucket {n}", {"n": n}) for n in range(3)]
    assert numbers == [1, 2, 3]
    assert launches.place() == {"at": "bucket 2", "launched": 3, "under way": [{"n": 0}, {"n": 1}, {"n": 2}]}
    launches.complete(2)
    assert launches.place()["under way"] == [{"n": 2}]
    launches.complete(1)
    assert launches.place()["under way"] == [{"n": 2}], "an end that comes late takes nothing else along"


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_missing_is_what_the_other_has_launched_since(own: int, more: int, complete: int) -> None:
    """A rank cannot have completed what this one, which takes part in it, has not launched."""
    joined, other = Launches(), Launches()
    for number in range(own):
        joined.add("", number)
    for number in range(own + more):
        other.add("", number)
    other.complete(min(complete, own))
    assert list(joined.missing(other.place())) == list(range(own, own + more))
    assert list(other.missing(joined.place())) == []
