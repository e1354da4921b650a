"""sparse_allreduce_async adds up the indices and values of all ranks."""

from __future__ import annotations

import torch
from _cases import raises, run
from torch import Tensor

import cloudtrain.distributed.torch as hvd


def sparse_of(rank: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Row 0 and, except on rank 0, one more row; ranks differ in the number of values."""
    rows = [0, 1 + rank][: 1 + (rank > 0)]
    values = torch.tensor([[rank + 1.0, 2.0]] * len(rows)).to(dtype)
    return torch.sparse_coo_tensor(torch.tensor([rows]), values, (6, 2))


def dense_sum(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.stack([sparse_of(rank, dtype).to_dense() for rank in range(hvd.size())]).sum(0)


def case_sum_and_average() -> None:
    for dtype in (torch.float32, torch.float64):
        for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
            reduced = hvd.synchronize(hvd.sparse_allreduce_async(sparse_of(hvd.rank(), dtype), "s", op))
            assert reduced.is_sparse
            assert reduced.dtype == dtype
            torch.testing.assert_close(reduced.to_dense(), dense_sum(dtype) / divisor)


def case_two_sparse_dimensions_and_none_of_values() -> None:
    own = torch.sparse_coo_tensor(torch.tensor([[hvd.rank()], [1]]), torch.tensor([5.0]), (3, 2))
    reduced = hvd.sparse_allreduce_async(own, name="two", op=hvd.Sum).wait().to_dense()
    assert [row.tolist() for row in reduced[: hvd.size()]] == [[0.0, 5.0]] * hvd.size()


def case_a_rank_without_values() -> None:
    own = sparse_of(0) if hvd.rank() == 0 else torch.sparse_coo_tensor(size=(6, 2))
    if hvd.rank() > 0:
        own = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (6, 2))
    reduced = hvd.sparse_allreduce_async(own, name="some", op=hvd.Sum).wait()
    assert torch.equal(reduced.to_dense(), sparse_of(0).to_dense())


def case_values_given_twice() -> None:
    own = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.ones(2), (4,))
    reduced = hvd.sparse_allreduce_async(own, name="twice", op=hvd.Sum).wait()
    assert reduced.to_dense().tolist() == [0.0, 2.0 * hvd.size(), 0.0, 0.0]


def case_invalid_arguments() -> None:
    with raises(ValueError, "needs a sparse COO tensor"):
        hvd.sparse_allreduce_async(torch.ones(2))
    with raises(ValueError, "is not supported for sparse tensors"):
        hvd.sparse_allreduce_async(sparse_of(0), op=hvd.Max)


if __name__ == "__main__":
    run(globals())
