"""allgather, broadcast and objects."""

from __future__ import annotations

import itertools

import torch
from _cases import raises, run
from torch import Tensor

import cloudtrain.distributed.torch as hvd

TYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
]


WIDTHS = [3, 20_000]
"""Rows of 3 elements are sent with the request, rows of 20,000 through the backend."""


def rows(rank: int, dtype: torch.dtype = torch.float32, width: int = 3) -> Tensor:
    """``rank + 1`` rows, different on every rank."""
    return (torch.arange((rank + 1) * width).reshape(rank + 1, width) % 7 + rank).to(dtype)


def same(a: Tensor, b: Tensor) -> bool:
    """torch.equal, also for types that torch cannot compare."""
    return a.dtype == b.dtype and torch.equal(a.to(torch.complex64), b.to(torch.complex64))


def case_ragged_gather_of_every_type() -> None:
    for dtype, width in itertools.product(TYPES, WIDTHS):
        result = hvd.allgather(rows(hvd.rank(), dtype, width))
        wanted = torch.cat([rows(rank, dtype, width) for rank in range(hvd.size())])
        assert same(result, wanted), dtype


def case_even_gather() -> None:
    result = hvd.allgather(torch.full((2, 1, 4), hvd.rank(), dtype=torch.int16))
    assert result.shape == (2 * hvd.size(), 1, 4)
    assert result[:, 0, 0].tolist() == [rank for rank in range(hvd.size()) for _ in range(2)]


def case_gather_where_a_rank_has_no_rows() -> None:
    mine = torch.empty(0, 2) if hvd.rank() == 0 else torch.ones(hvd.rank(), 2)
    assert hvd.allgather(mine).shape == (sum(range(hvd.size())), 2)
    assert hvd.allgather(torch.empty(0, 2)).shape == (0, 2)
    assert hvd.allgather(torch.empty(2, 0)).shape == (2 * hvd.size(), 0)


def case_gather_without_dimensions() -> None:
    assert hvd.allgather(torch.tensor(hvd.rank())).tolist() == list(range(hvd.size()))


def case_gather_not_contiguous() -> None:
    result = hvd.allgather(rows(1).t())
    assert torch.equal(result, torch.cat([rows(1).t()] * hvd.size()))


def case_asynchronous_gathers() -> None:
    handles = [hvd.allgather_async(rows(hvd.rank()) + n) for n in range(5)]
    wanted = torch.cat([rows(rank) for rank in range(hvd.size())])
    for n, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), wanted + n)


def case_gather_of_incompatible_shapes() -> None:
    if hvd.size() == 1:
        return
    with raises(RuntimeError, "allgather of odd", "rank 0: ['rows', 3], rank 1: ['rows', 4]"):
        hvd.allgather(torch.ones(2, 3 + hvd.rank()), name="odd")
    with raises(RuntimeError, "rank 0: ['rows'], rank 1: ['rows', 1]"):
        hvd.allgather(torch.ones(2).reshape((2,) + (1,) * hvd.rank()))


def case_gradient_of_gather() -> None:
    tensor = rows(hvd.rank()).requires_grad_()
    joined = hvd.allgather(tensor)
    weights = torch.arange(float(joined.numel())).reshape(joined.shape)
    (joined * weights * (hvd.rank() + 1)).sum().backward()
    first = sum(range(hvd.rank() + 1))
    wanted = weights[first : first + hvd.rank() + 1] * (hvd.size() + 1) / 2
    torch.testing.assert_close(tensor.grad, wanted)
    scalar = torch.tensor(1.0, requires_grad=True)
    hvd.allgather(scalar).sum().backward()
    assert scalar.grad.item() == 1.0


def case_broadcast_of_every_type() -> None:
    root = hvd.size() - 1
    for dtype, width in itertools.product(TYPES, WIDTHS):
        given = rows(root, dtype, width)
        mine = given.clone() if hvd.rank() == root else torch.zeros(root + 1, width).to(dtype)
        kept = mine.clone()
        assert same(hvd.broadcast(mine, root), given), dtype
        assert same(mine, kept), "the input was changed"
        assert hvd.broadcast_(mine, root) is mine
        assert same(mine, given)


def case_broadcast_of_odd_shapes() -> None:
    for tensor in (
        torch.tensor(float(hvd.rank())),
        torch.empty(0),
        torch.full((3, 2), float(hvd.rank())).t(),
    ):
        assert torch.equal(hvd.broadcast_(tensor, 0), torch.zeros_like(tensor))


def case_broadcast_from_an_invalid_root() -> None:
    with raises(ValueError, f"root_rank {hvd.size()}"):
        hvd.broadcast(torch.ones(1), hvd.size())


def case_gradient_of_broadcast() -> None:
    tensor = torch.ones(3, requires_grad=True)
    (hvd.broadcast(tensor, 0) * (hvd.rank() + 1)).sum().backward()
    wanted = (hvd.size() + 1) / 2 if hvd.rank() == 0 else 0.0
    assert tensor.grad.tolist() == [wanted] * 3


def case_objects() -> None:
    root = hvd.size() - 1
    assert hvd.broadcast_object({"rank": hvd.rank(), "text": "ü" * 1000}, root)["rank"] == root
    assert hvd.broadcast_object(None, 0, name="nothing") is None
    mine = {"rank": hvd.rank(), "rows": torch.ones(hvd.rank() + 1)}
    assert hvd.broadcast_object_fn(root_rank=root, name="later")(hvd.rank()) == root
    everyone = hvd.allgather_object(mine)
    assert [one["rank"] for one in everyone] == list(range(hvd.size()))
    assert [len(one["rows"]) for one in everyone] == list(range(1, hvd.size() + 1))


def case_large_objects() -> None:
    """Too large to be sent with the request: on the root only, on another rank only, on all ranks."""
    last = hvd.size() - 1
    for large in ({0}, {last}, set(range(hvd.size()))):
        own = bytes([hvd.rank()]) * (100_000 if hvd.rank() in large else 3)
        received = hvd.broadcast_object(own, 0)
        assert received == bytes(100_000 if 0 in large else 3)
        gathered = hvd.allgather_object(own)
        assert [set(part) for part in gathered] == [{rank} for rank in range(hvd.size())]
        assert [len(part) > 3 for part in gathered] == [rank in large for rank in range(hvd.size())]


if __name__ == "__main__":
    run(globals())
