"""Boxes: the parts of a tensor that several ranks hold, and how they lie in each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """The elements from ``offsets`` on, ``shape`` of them in each dimension."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Box:
        """All of a tensor of ``shape``."""
        return cls((0,) * len(shape), shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return ",".join(f"{begin}:{begin + length}" for begin, length in zip(*self))

    def overlap(self, other: Box) -> Box | None:
        """The elements that lie in both, if there are any."""
        if self == other:  # most tensors are stored whole
            return self if self.size else None
        begins = tuple(map(max, self.offsets, other.offsets))
        ends = map(min, _ends(self), _ends(other))
        shape = tuple(end - begin for begin, end in zip(begins, ends))
        return Box(begins, shape) if all(length > 0 for length in shape) else None

    def index_in(self, outer: Box) -> tuple[object, ...]:
        """What selects this box in an array that holds ``outer``."""
        begins = (mine - its for mine, its in zip(self.offsets, outer.offsets))
        # With the ellipsis an array without dimensions gives a view too.
        return (*(slice(begin, begin + length) for begin, length in zip(begins, self.shape)), ...)

    def begin_in(self, outer: Box) -> int | None:
        """The number of elements before this box in ``outer``, in row-major order.

        None where it does not lie in ``outer``, or not in one piece.
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


def problem_of(boxes: Sequence[Box], shape: tuple[int, ...]) -> str:
    """Why the boxes are not exactly a tensor of ``shape``: the text goes on after the tensor's name.

    Empty where each element lies in one box, and no box is empty.
    """
    whole = Box.whole(shape)
    for box in boxes:
        if len(box.offsets) != len(shape) or len(box.shape) != len(shape) or box.overlap(whole) != box:
            return f"has no part [{box}]: its shape is {list(shape)}"
    pair = _overlapping(boxes, len(shape))
    if pair:
        return f"has the parts [{pair[0]}] and [{pair[1]}], which overlap"
    stored = sum(box.size for box in boxes)
    return "" if stored == whole.size else f"has {whole.size} elements, and only {stored} of them are there"


def _overlapping(boxes: Sequence[Box], dims: int) -> tuple[Box, Box] | None:
    """Two that share an element: a sweep along the dimension that tells most of them apart."""
    if len(boxes) < 2:
        return None
    if not dims:
        return boxes[0], boxes[1]
    dim = max(range(dims), key=lambda dim: len({box.offsets[dim] for box in boxes}))
    near: list[Box] = []
    for box in sorted(boxes, key=lambda box: box.offsets[dim]):
        near = [other for other in near if other.offsets[dim] + other.shape[dim] > box.offsets[dim]]
        for other in near:
            if box.overlap(other):
                return other, box
        near.append(box)
    return None


def _ends(box: Box) -> Iterable[int]:
    return (begin + length for begin, length in zip(*box))
