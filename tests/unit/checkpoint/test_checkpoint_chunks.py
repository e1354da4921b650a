"""Chunks of a tensor, compared with NumPy's indexing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from cloudtrain.checkpoint.tensors.chunks import Chunk, coverage_problem

SHAPE = (4, 3, 5)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    begins = [draw(st.integers(0, length - 1)) for length in SHAPE]
    lengths = [draw(st.integers(1, length - begin)) for begin, length in zip(begins, SHAPE, strict=True)]
    return Chunk(tuple(begins), tuple(lengths))


def elements(chunk: Chunk) -> np.ndarray:
    """The numbers of the chunk's elements in a tensor of `SHAPE`."""
    return np.arange(np.prod(SHAPE)).reshape(SHAPE)[chunk.index_in(Chunk.whole(SHAPE))]


@given(chunks(), chunks())
def test_overlap(left: Chunk, right: Chunk) -> None:
    both = left.overlap(right)
    assert set(np.intersect1d(elements(left), elements(right))) == set(elements(both).flat if both else ())
    if both:
        assert (elements(left)[both.index_in(left)] == elements(right)[both.index_in(right)]).all()


@given(chunks(), chunks())
def test_begin_of_contiguous_chunks(inner: Chunk, outer: Chunk) -> None:
    order = {number: place for place, number in enumerate(elements(outer).flat)}
    places = [order.get(number) for number in elements(inner).flat]
    begin = inner.begin_in(outer)
    if None in places or places != list(range(places[0] or 0, (places[0] or 0) + len(places))):
        assert begin is None
    else:
        assert begin == places[0]


@given(st.lists(chunks(), max_size=4))
def test_coverage(some: list[Chunk]) -> None:
    counts = np.zeros(SHAPE, int)
    for chunk in some:
        counts[chunk.index_in(Chunk.whole(SHAPE))] += 1
    assert (coverage_problem(some, SHAPE) == "") == bool((counts == 1).all())


@pytest.mark.parametrize(
    ("some", "shape", "problem"),
    [
        ([Chunk((0,), (4,)), Chunk((4,), (3,))], (7,), ""),
        ([Chunk((), ())], (), ""),
        ([], (0, 4), ""),
        ([Chunk((0,), (4,)), Chunk((3,), (4,))], (7,), "has the parts [0:4] and [3:7], which overlap"),
        ([Chunk((), ()), Chunk((), ())], (), "has the parts [] and [], which overlap"),
        ([Chunk((0,), (4,))], (7,), "has 7 elements, but only 4 of them are stored"),
        ([Chunk((5,), (4,))], (7,), "has no part [5:9]: its shape is [7]"),
        ([Chunk((0, 0), (1, 7))], (7,), "has no part [0:1,0:7]: its shape is [7]"),
        (
            [Chunk((0, col), (2, 2)) for col in (0, 2, 4)] + [Chunk((2, 0), (2, 6))],
            (4, 6),
            "",
        ),
    ],
)
def test_coverage_problems_are_described(some: list[Chunk], shape: tuple[int, ...], problem: str) -> None:
    assert coverage_problem(some, shape) == problem
