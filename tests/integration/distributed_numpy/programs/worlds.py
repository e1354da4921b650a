"""The world, its process sets, and ranks without more data."""

from __future__ import annotations

import numpy as np
from _cases import raises, ranks

import cloudtrain.distributed.numpy as hvd


def case_one_host() -> None:
    assert hvd.is_initialized()
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous()
    assert hvd.allgather(hvd.rank()).tolist() == list(ranks())


def case_process_sets() -> None:
    if hvd.size() < 3:
        return
    pair = hvd.add_process_set([0, 2])
    alone = hvd.add_process_set(hvd.ProcessSet([1]))
    assert hvd.process_set_by_id(pair.process_set_id) is pair
    assert hvd.process_set_by_id(0) is hvd.global_process_set
    mine = alone if hvd.rank() == 1 else pair
    members = mine.members()
    for size in (2, 9000):
        assert hvd.allreduce(np.full(size, hvd.rank()), op=hvd.Sum, process_set=mine)[0] == sum(members)
        rows = np.full((2, size), hvd.rank())
        assert hvd.allgather(rows, process_set=mine)[:, 0].tolist() == np.repeat(members, 2).tolist()
        assert hvd.broadcast(rows, members[-1], process_set=mine)[0, 0] == members[-1]
        assert hvd.alltoall(rows[: len(members)], process_set=mine).shape == (len(members), size)
        assert len(hvd.reducescatter(rows, process_set=mine)) == 2 // len(members)
    assert hvd.allgather_object(hvd.rank(), process_set=mine) == members
    hvd.barrier(mine)
    other = pair if mine is alone else alone
    with raises(ValueError, f"rank {hvd.rank()} is not in process set"):
        hvd.allreduce(np.ones(2), process_set=other)
    with raises(ValueError, "already registered"):
        hvd.add_process_set([2, 0])
    for process_set in (pair, alone):
        assert hvd.remove_process_set(process_set)
        assert not hvd.remove_process_set(process_set)
    with raises(ValueError, "is not registered"):
        hvd.allreduce(np.ones(2), process_set=pair)


def case_wrong_process_sets() -> None:
    for wrong in ([], [hvd.size()], list(ranks())):
        with raises(ValueError):
            hvd.add_process_set(wrong)
    with raises(ValueError, "is not a ProcessSet"):
        hvd.barrier([0])
    with raises(ValueError, "no process set 99"):
        hvd.process_set_by_id(99)
    assert not hvd.remove_process_set(hvd.global_process_set)


def case_ranks_join() -> None:
    """The last rank has the most data."""
    sums = [
        hvd.allreduce(np.full(size, 1.0), op=hvd.Sum, name=f"step {step} {size}")[0]
        for step in range(hvd.rank() + 1)
        for size in (2, 9000)
    ]
    assert sums == [hvd.size() - step for step in range(hvd.rank() + 1) for _ in range(2)]
    assert hvd.join() == hvd.size() - 1
    assert hvd.allreduce(1, op=hvd.Sum) == hvd.size()


def case_barrier() -> None:
    hvd.barrier()


def case_synchronize_takes_handles() -> None:
    with raises(ValueError, "takes the handle"):
        hvd.synchronize(np.ones(1))
