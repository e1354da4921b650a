"""Chunks of a tensor, as in ``torch.distributed.checkpoint``: hyperrectangles, and how they overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Chunk(NamedTuple):
    """The elements that start at ``offsets`` and extend over ``shape``, per dimension."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Chunk:
        """All elements of a tensor of ``shape``."""
        return cls((0,) * len(shape), shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return ",".join(f"{begin}:{begin + length}" for begin, length in zip(*self))

    def overlap(self, other: Chunk) -> Chunk | None:
        """The elements in both chunks, or None."""
        if self == other:  # most tensors are stored whole
            return self if self.size else None
        begins = tuple(map(max, self.offsets, other.offsets))
        ends = map(min, _ends(self), _ends(other))
        shape = tuple(end - begin for begin, end in zip(begins, ends))
        return Chunk(begins, shape) if all(length > 0 for length in shape) else None

    def index_in(self, outer: Chunk) -> tuple[object, ...]:
        """The index that selects this chunk in an array that holds ``outer``."""
        begins = (mine - its for mine, its in zip(self.offsets, outer.offsets))
        # The ellipsis makes indexing return a view for an array without dimensions, too.
        return (*(slice(begin, begin + length) for begin, length in zip(begins, self.shape)), ...)

    def begin_in(self, outer: Chunk) -> int | None:
        """The number of elements of ``outer`` before this chunk, in row-major order.

        None if the chunk is not inside ``outer``, or not contiguous in it.
        """
        if not self.size or self.overlap(outer) != self:
            return None
        if self == outer:
            return 0
        partial = (dim for dim, (mine, its) in enumerate(zip(self.shape, outer.shape)) if mine != its)
        if any(length != 1 for length in self.shape[: max(partial, default=0)]):
            return None
        begin = 0
        for mine, its, length in zip(self.offsets, outer.offsets, outer.shape):
            begin = begin * length + mine - its
        return begin


def coverage_problem(chunks: Sequence[Chunk], shape: tuple[int, ...]) -> str:
    """Why the chunks do not cover a tensor of ``shape`` exactly once, as a clause to follow the tensor's name.

    Empty if every element is in exactly one chunk and no chunk is empty.
    """
    whole = Chunk.whole(shape)
    for chunk in chunks:
        if (
            len(chunk.offsets) != len(shape)
            or len(chunk.shape) != len(shape)
            or chunk.overlap(whole) != chunk
        ):
            return f"has no part [{chunk}]: its shape is {list(shape)}"
    pair = _overlapping(chunks, len(shape))
    if pair:
        return f"has the parts [{pair[0]}] and [{pair[1]}], which overlap"
    stored = sum(chunk.size for chunk in chunks)
    return "" if stored == whole.size else f"has {whole.size} elements, but only {stored} of them are stored"


def _overlapping(chunks: Sequence[Chunk], dims: int) -> tuple[Chunk, Chunk] | None:
    """Two chunks that share an element: a sweep along the dimension with the most distinct offsets."""
    if len(chunks) < 2:
        return None
    if not dims:
        return chunks[0], chunks[1]
    dim = max(range(dims), key=lambda dim: len({chunk.offsets[dim] for chunk in chunks}))
    active: list[Chunk] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.offsets[dim]):
        active = [other for other in active if other.offsets[dim] + other.shape[dim] > chunk.offsets[dim]]
        for other in active:
            if chunk.overlap(other):
                return other, chunk
        active.append(chunk)
    return None


def _ends(chunk: Chunk) -> Iterable[int]:
    return (begin + length for begin, length in zip(*chunk))
