"""Copies between addresses write the right bytes and no others."""

from __future__ import annotations

import numpy as np
import pytest

from cloudtrain.checkpoint.tensors.snapshot import BLOCK, SMALL, THREADS, copy_memory


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0, 1, 7],
        [SMALL, SMALL + 1],
        [BLOCK - 1, BLOCK, BLOCK + 1],
        [3 * THREADS * BLOCK + 5, 11, 2 * BLOCK],
    ],
)
def test_every_byte_is_copied_and_no_other_is_touched(sizes: list[int]) -> None:
    noise = np.random.default_rng(0)
    sources = [noise.integers(1, 256, size, dtype=np.uint8) for size in sizes]
    gap = 64
    target = np.zeros(sum(sizes) + gap * (len(sizes) + 1), dtype=np.uint8)
    moves, begin = [], gap
    for source in sources:
        moves.append((address(target) + begin, address(source), source.size))
        begin += source.size + gap
    copy_memory(moves)
    untouched = np.zeros(gap, dtype=np.uint8)
    assert np.array_equal(
        target, np.concatenate([untouched, *(part for one in sources for part in (one, untouched))])
    )
