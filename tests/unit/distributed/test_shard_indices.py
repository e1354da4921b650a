"""Each rank's share of an epoch."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DistributedSampler

from cloudtrain.distributed import InvalidArgument, shard_indices


def shares(count: int, size: int, **options: Any) -> list[list[int]]:
    return [shard_indices(count, rank, size, **{"epoch": 0, **options}).tolist() for rank in range(size)]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("count", "size"), [(12, 1), (12, 4), (13, 4), (15, 4), (3, 4), (1, 4), (0, 4)])
def test_shares_are_those_of_torch(count: int, size: int, drop_last: bool) -> None:
    samplers = [
        DistributedSampler(range(count), size, rank, shuffle=False, drop_last=drop_last)
        for rank in range(size)
    ]
    assert shares(count, size, shuffle=False, drop_last=drop_last) == [list(sampler) for sampler in samplers]


def test_every_sample_once_in_an_order_per_epoch_and_seed() -> None:
    orders = [shard_indices(100, 0, 1, epoch=epoch, seed=seed) for epoch in range(3) for seed in range(3)]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({order.tobytes() for order in orders}) == len(orders)
    assert np.array_equal(orders[0], shard_indices(100, 0, 1, epoch=0))


def test_the_order_never_changes() -> None:
    """Training may resume with another version of cloudtrain or NumPy."""
    assert shard_indices(8, 0, 1, epoch=2, seed=3).tolist() == [3, 7, 4, 0, 1, 6, 2, 5]


def test_batches_of_all_ranks_equal_those_of_one_rank() -> None:
    alone = shard_indices(24, 0, 1, epoch=1)
    for size in (2, 3, 4):
        first = [share[:2] for share in shares(24, size, epoch=1)]
        assert sorted(chain(*first)) == sorted(alone[: 2 * size])


@pytest.mark.parametrize(("before", "after"), [(2, 2), (4, 1), (1, 3), (3, 4)])
def test_resuming_yields_the_remaining_samples(before: int, after: int) -> None:
    """After two steps of three samples per rank, on any number of ranks; the remainder is filled up with repeats."""
    seen = list(chain(*(share[:6] for share in shares(50, before, epoch=5))))
    rest = shares(50, after, epoch=5, done=len(seen))
    assert len({len(share) for share in rest}) == 1
    assert set(seen) | set(chain(*rest)) == set(range(50))
    assert set(seen) & set(chain(*rest)) == set()
    assert len(seen) + sum(map(len, rest)) < 50 + after


def test_no_samples_remain_after_the_last_step() -> None:
    assert shares(10, 4, done=12) == [[], [], [], []]  # two samples were repeated


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 2},
        {"rank": -1},
        {"size": 0},
        {"count": -1},
        {"done": -1},
        {"epoch": -1},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_invalid_arguments(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=f"shard_indices: .*{next(iter(wrong.values()))}") as raised:
        shard_indices(**{"count": 10, "rank": 0, "size": 2, "epoch": 0, **wrong})
    assert isinstance(raised.value, ValueError)
