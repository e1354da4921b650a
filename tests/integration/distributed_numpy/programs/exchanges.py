"""allgather, broadcast, alltoall and objects."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from _cases import bfloat16, over_mpi, raises, ranks, same

import cloudtrain.distributed.numpy as hvd

TYPES = [
    *(
        np.dtype(name)
        for name in ("bool", "uint8", "uint16", "uint32", "uint64", "int16", "int64", "float16")
    ),
    *(np.dtype(name) for name in ("float32", "complex64", "complex128", ">f8", ">i4")),
    bfloat16,
    np.dtype(ml_dtypes.float8_e4m3fn),
]
WIDTHS = 3, 4000
"""Rows small enough for the request, and rows that the backend sends."""


def rows(count: int, rank: int, dtype: np.dtype, width: int = 3) -> np.ndarray:
    """Return rows of ``rank``, which differ from those of all other ranks."""
    return (np.arange(count * width).reshape(count, width) % 7 + rank).astype(dtype)


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate ``parts`` in their byte order."""
    return np.concatenate(parts).astype(parts[0].dtype)


def case_ragged_gather_of_every_type() -> None:
    for width in WIDTHS:
        for dtype in TYPES:
            result = hvd.allgather(rows(hvd.rank() + 1, hvd.rank(), dtype, width))
            same(result, joined([rows(rank + 1, rank, dtype, width) for rank in ranks()]))


def case_gather_of_odd_shapes() -> None:
    mine = np.ones((hvd.rank(), 2))
    assert hvd.allgather(mine).shape == (sum(ranks()), 2)
    assert hvd.allgather(np.empty((0, 2))).shape == (0, 2)
    assert hvd.allgather(np.empty((2, 0))).shape == (2 * hvd.size(), 0)
    assert hvd.allgather(hvd.rank()).tolist() == list(ranks())
    turned = rows(5, hvd.rank(), np.dtype("int64")).T
    turned.flags.writeable = False
    same(hvd.allgather(turned), np.concatenate([rows(5, rank, np.dtype("int64")).T for rank in ranks()]))


def case_a_large_gather_from_some_ranks() -> None:
    mine = np.full((10000 * (hvd.rank() == 0), 2), 7)
    assert hvd.allgather(mine).shape == (10000, 2)


def case_grouped_gather() -> None:
    for width in WIDTHS:
        kinds = [np.dtype("float32"), bfloat16, np.dtype("int16")]
        results = hvd.grouped_allgather([rows(hvd.rank() + 1, hvd.rank(), dtype, width) for dtype in kinds])
        for dtype, result in zip(kinds, results, strict=True):
            same(result, joined([rows(rank + 1, rank, dtype, width) for rank in ranks()]))


def case_results_are_writable() -> None:
    for width in WIDTHS:
        array = rows(2, hvd.rank(), np.dtype("float32"), width)
        for result in (
            hvd.allgather(array),
            hvd.broadcast(array, 0),
            hvd.alltoall(np.repeat(array, hvd.size(), 0)),
        ):
            result += 1
        same(array, rows(2, hvd.rank(), array.dtype, width))


def case_gather_disagreement() -> None:
    if hvd.size() > 1:
        with raises(RuntimeError, "allgather of odd", "rank 0: ['rows', 3]", "rank 1: ['rows', 4]"):
            hvd.allgather(np.ones((2, 3 + (hvd.rank() == 1))), name="odd")


def case_broadcast_of_every_type() -> None:
    root = hvd.size() - 1
    for width in WIDTHS:
        for dtype in TYPES:
            mine = rows(2, root, dtype, width) if hvd.rank() == root else np.zeros((2, width), dtype)
            kept = mine.copy()
            same(hvd.broadcast(mine, root), rows(2, root, dtype, width))
            same(mine, kept)
            assert hvd.broadcast_(mine, root) is mine
            same(mine, rows(2, root, dtype, width))


def case_broadcast_of_odd_shapes() -> None:
    for array in (np.array(float(hvd.rank())), np.empty(0), np.full((3, 2), float(hvd.rank())).T):
        same(hvd.broadcast_(array, 0), np.zeros_like(array))
    with raises(ValueError, f"root_rank {hvd.size()}"):
        hvd.broadcast(np.ones(1), hvd.size())
    with raises(ValueError, "read-only"):
        hvd.broadcast_(np.broadcast_to(1.0, 3), 0)


def case_alltoall() -> None:
    for width in WIDTHS:
        for dtype in (np.dtype("float32"), np.dtype(">i2"), bfloat16):
            mine = rows(2 * hvd.size(), hvd.rank(), dtype, width)
            mine.flags.writeable = False
            result = hvd.alltoall(mine)
            parts = [rows(2 * hvd.size(), rank, dtype, width) for rank in ranks()]
            same(result, joined([part[2 * hvd.rank() :][:2] for part in parts]))


def case_alltoall_with_splits() -> None:
    # rank r sends r + n rows to rank n
    splits = [hvd.rank() + n for n in ranks()]
    result, received = hvd.alltoall(np.full((sum(splits), 2), hvd.rank()), splits)
    same(received, np.array([rank + hvd.rank() for rank in ranks()], np.int32))
    assert result[:, 0].tolist() == [rank for rank in ranks() for _ in range(rank + hvd.rank())]
    for wrong in ([1] * (hvd.size() + 1), [0.5] * hvd.size(), [-1] * hvd.size()):
        with raises(ValueError, "splits"):
            hvd.alltoall(np.ones(hvd.size()), wrong)
    if hvd.size() > 1:
        with raises(ValueError, "cannot be divided"):
            hvd.alltoall(np.ones(hvd.size() + 1))


def case_types_that_one_backend_lacks() -> None:
    array = np.full(2, hvd.rank(), np.longdouble)
    if over_mpi() or hvd.size() == 1:
        assert hvd.allgather(array).shape == (2 * hvd.size(),)
        same(hvd.allreduce(array, op=hvd.Max), np.full(2, hvd.size() - 1, np.longdouble))
    else:
        with raises(ValueError, "cannot be sent over Gloo", "backend='mpi'"):
            hvd.allgather(array)


def case_objects() -> None:
    root = hvd.size() - 1
    assert hvd.broadcast_object({"rank": hvd.rank(), "text": "ü" * 100000}, root, name="big")["rank"] == root
    assert hvd.broadcast_object(None, 0) is None
    everyone = hvd.allgather_object({"rank": hvd.rank(), "rows": np.ones(hvd.rank() + 1)})
    assert [one["rank"] for one in everyone] == list(ranks())
    assert [len(one["rows"]) for one in everyone] == list(range(1, hvd.size() + 1))
