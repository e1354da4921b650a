"""Boxes of a tensor, against what NumPy says of its elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudtrain.checkpoint._boxes import Box, problem_of

SHAPE = (4, 3, 5)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    begins = [draw(st.integers(0, length - 1)) for length in SHAPE]
    lengths = [draw(st.integers(1, length - begin)) for begin, length in zip(begins, SHAPE, strict=True)]
    return Box(tuple(begins), tuple(lengths))


def elements(box: Box) -> np.ndarray:
    """The numbers of the box's elements in a tensor of `SHAPE`."""
    return np.arange(np.prod(SHAPE)).reshape(SHAPE)[box.index_in(Box.whole(SHAPE))]


@given(boxes(), boxes())
def test_overlap(left: Box, right: Box) -> None:
    both = left.overlap(right)
    assert set(np.intersect1d(elements(left), elements(right))) == set(elements(both).flat if both else ())
    if both:
        assert (elements(left)[both.index_in(left)] == elements(right)[both.index_in(right)]).all()


@given(boxes(), boxes())
def test_one_piece(inner: Box, outer: Box) -> None:
    order = {number: place for place, number in enumerate(elements(outer).flat)}
    places = [order.get(number) for number in elements(inner).flat]
    begin = inner.begin_in(outer)
    if None in places or places != list(range(places[0] or 0, (places[0] or 0) + len(places))):
        assert begin is None
    else:
        assert begin == places[0]


@given(st.lists(boxes(), max_size=4))
def test_problems(some: list[Box]) -> None:
    counts = np.zeros(SHAPE, int)
    for box in some:
        counts[box.index_in(Box.whole(SHAPE))] += 1
    assert (problem_of(some, SHAPE) == "") == bool((counts == 1).all())


@pytest.mark.parametrize(
    ("some", "shape", "problem"),
    [
        ([Box((0,), (4,)), Box((4,), (3,))], (7,), ""),
        ([Box((), ())], (), ""),
        ([], (0, 4), ""),
        ([Box((0,), (4,)), Box((3,), (4,))], (7,), "has the parts [0:4] and [3:7], which overlap"),
        ([Box((), ()), Box((), ())], (), "has the parts [] and [], which overlap"),
        ([Box((0,), (4,))], (7,), "has 7 elements, and only 4 of them are there"),
        ([Box((5,), (4,))], (7,), "has no part [5:9]: its shape is [7]"),
        ([Box((0, 0), (1, 7))], (7,), "has no part [0:1,0:7]: its shape is [7]"),
        (
            [Box((0, col), (2, 2)) for col in (0, 2, 4)] + [Box((2, 0), (2, 6))],
            (4, 6),
            "",
        ),
    ],
)
def test_what_is_wrong(some: list[Box], shape: tuple[int, ...], problem: str) -> None:
    assert problem_of(some, shape) == problem
