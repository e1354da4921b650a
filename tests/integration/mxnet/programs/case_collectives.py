"""Compares the collectives with NumPy results computed from the inputs of all ranks."""

from __future__ import annotations

import mxnet as mx
import numpy as np
from _cases import raises, ranks, same

import cloudtrain.distributed.mxnet as hvd

TYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")
COMBINED = {
    hvd.Sum: np.sum,
    hvd.Min: np.min,
    hvd.Max: np.max,
    hvd.Product: np.prod,
    hvd.Average: lambda given, axis, dtype: (given.sum(axis) / len(given)).astype(dtype),
}


def given(rank: int, dtype: str, shape: tuple[int, ...] = (3, 2)) -> np.ndarray:
    """Return the input of a rank: small numbers, so that every type can hold every result."""
    return np.random.default_rng(rank).integers(1, 6, shape).astype(dtype)


def mine(dtype: str = "float32", shape: tuple[int, ...] = (3, 2)) -> mx.nd.NDArray:
    return mx.nd.array(given(hvd.rank(), dtype, shape), dtype=dtype)


def combined(op: hvd.ReduceOp, dtype: str, shape: tuple[int, ...] = (3, 2)) -> np.ndarray:
    everything = np.stack([given(rank, dtype, shape) for rank in ranks()])
    if op == hvd.Average:
        return COMBINED[op](everything, 0, dtype)
    if op in (hvd.Sum, hvd.Product):
        return COMBINED[op](everything, 0, dtype=dtype)
    return COMBINED[op](everything, 0)


def case_allreduce() -> None:
    for op in COMBINED:
        for dtype in TYPES:
            tensor = mine(dtype)
            same(hvd.allreduce(tensor, op=op, name=f"{op} {dtype}"), combined(op, dtype))
            same(tensor, given(hvd.rank(), dtype))  # not changed
            assert hvd.allreduce_(tensor, op=op) is tensor
            same(tensor, combined(op, dtype))


def case_allreduce_waits_for_pending_computations() -> None:
    tensor = mx.nd.ones((300, 300))
    for _ in range(20):
        tensor = mx.nd.dot(tensor, tensor) / 300
    hvd.allreduce_(tensor, op=hvd.Sum)
    tensor += 1
    same(tensor, np.full((300, 300), hvd.size() + 1, np.float32))


def case_average_and_factors() -> None:
    same(hvd.allreduce(mine()), combined(hvd.Average, "float32"))
    same(hvd.allreduce(mine(), False), combined(hvd.Sum, "float32"))
    factors = {"prescale_factor": 0.5, "postscale_factor": 4.0}
    same(hvd.allreduce(mine(), op=hvd.Sum, priority=-3, **factors), 2 * combined(hvd.Sum, "float32"))


def case_grouped_allreduce() -> None:
    kinds = [("float32", (3, 2)), ("int64", (4,)), ("float16", (2, 2, 2)), ("float32", (5,))]
    tensors = [mine(*kind) for kind in kinds]
    wanted = [combined(hvd.Sum, *kind) for kind in kinds]
    for result, sums in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), wanted, strict=True):
        same(result, sums)
    assert hvd.grouped_allreduce_(tensors, op=hvd.Sum)[1] is tensors[1]
    for result, sums in zip(tensors, wanted, strict=True):
        same(result, sums)


def case_large_arrays_use_mpi() -> None:
    same(hvd.allreduce(mine("float32", (70_000,)), op=hvd.Sum), combined(hvd.Sum, "float32", (70_000,)))


def case_allgather() -> None:
    shapes = [(rank, 2) for rank in ranks()]  # rank 0 has no rows
    with mx.util.np_shape(True):
        tensor = mine("int32", shapes[hvd.rank()])
    wanted = np.concatenate([given(rank, "int32", shapes[rank]) for rank in ranks()])
    same(hvd.allgather(tensor, "rows"), wanted)
    both = hvd.grouped_allgather([tensor, mine()])
    same(both[0], wanted)
    same(both[1], np.concatenate([given(rank, "float32") for rank in ranks()]))


def case_broadcast() -> None:
    root = hvd.size() - 1
    tensor = mine("float64")
    same(hvd.broadcast(tensor, root, "copy"), given(root, "float64"))
    same(tensor, given(hvd.rank(), "float64"))
    assert hvd.broadcast_(tensor, root) is tensor
    same(tensor, given(root, "float64"))


def case_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = {to: to + 1 for to in ranks()}  # the number of rows for each destination
    tensor = mx.nd.array(np.repeat(np.arange(size) + 10 * rank, list(rows.values())), dtype="int32")
    wanted = np.repeat([rank + 10 * sender for sender in ranks()], rows[rank]).astype("int32")
    for splits in (list(rows.values()), mx.nd.array(list(rows.values()), dtype="int32")):
        received, counts = hvd.alltoall(tensor, splits)
        same(received, wanted)
        same(counts, np.full(size, rows[rank], "int32"))
    even = hvd.alltoall(mx.nd.array(np.arange(2 * size), dtype="int64"))
    same(even, np.tile([2 * rank, 2 * rank + 1], size))


def case_reducescatter() -> None:
    total = combined(hvd.Sum, "float32", (5, 2))
    mean = combined(hvd.Average, "float32", (5, 2))
    same(
        hvd.reducescatter(mine("float32", (5, 2)), op=hvd.Sum), np.array_split(total, hvd.size())[hvd.rank()]
    )
    one, two = hvd.grouped_reducescatter([mine("float32", (5, 2)), mine("int32", (4,))], name="two")
    same(one, np.array_split(mean, hvd.size())[hvd.rank()])
    same(two, np.array_split(combined(hvd.Average, "int32", (4,)), hvd.size())[hvd.rank()])


def case_arrays_of_the_numpy_interface() -> None:
    with mx.util.np_shape(True):
        result = hvd.allreduce(mx.np.array([1.0, 2.0]), op=hvd.Sum)
        assert type(result) is mx.np.ndarray
        same(result, np.float32([1, 2]) * hvd.size())
        loss = mx.np.array([1.0, 3.0]).mean()
        same(hvd.allreduce(loss), np.float32(2))
        same(hvd.allreduce_(loss, op=hvd.Sum), np.float32(2 * hvd.size()))


def case_objects() -> None:
    assert hvd.broadcast_object({"rank": hvd.rank()}, 0, "settings") == {"rank": 0}
    assert hvd.allgather_object("x" * hvd.rank(), "texts") == ["x" * rank for rank in ranks()]


def case_process_sets() -> None:
    if hvd.size() == 1:
        return
    alone = [hvd.add_process_set([rank]) for rank in ranks()]
    own = alone[hvd.rank()]
    same(hvd.allreduce(mine(), op=hvd.Sum, process_set=own), given(hvd.rank(), "float32"))
    with raises(hvd.InvalidArgument, "is not in process set"):
        hvd.allreduce(mine(), process_set=alone[hvd.rank() - 1])
    assert all(hvd.remove_process_set(one) for one in alone)


def case_ranks_that_disagree() -> None:
    if hvd.size() == 1:
        return
    with raises(hvd.HorovodInternalError, "weights", "shape"):
        hvd.allreduce(mx.nd.ones((2 + hvd.rank(), 3)), name="weights")
    with raises(hvd.HorovodInternalError, "type"):
        hvd.allgather(mx.nd.ones(3, dtype="int32" if hvd.rank() else "float32"))
    with raises(hvd.HorovodInternalError, "root_rank"):
        hvd.broadcast(mine(), hvd.rank())


def case_wrong_arguments() -> None:
    for call, word in (
        (lambda: hvd.allreduce([1.0, 2.0]), "list is not an MXNet NDArray"),
        (lambda: hvd.grouped_allreduce(mine()), "takes a list"),
        (lambda: hvd.allreduce(mine().tostype("row_sparse")), "tostype('default')"),
        (lambda: hvd.allreduce(mine(), True, op=hvd.Sum), "supersedes average"),
        (lambda: hvd.allreduce(mine(), op=hvd.Adasum), "Adasum"),
        (lambda: hvd.reducescatter(mine(), op=hvd.Max), "Average or Sum"),
        (lambda: hvd.broadcast(mine(), 99), "root_rank 99"),
        (lambda: hvd.reducescatter(mx.nd.array(np.float32(1))), "a first dimension"),
        (lambda: hvd.alltoall(mine(), [99] * hvd.size()), "99"),
        (lambda: hvd.alltoall(mine(), mx.nd.ones(hvd.size())), "integers"),
    ):
        if hvd.size() > 1 or word != "Adasum":
            with raises(ValueError, word):
                call()


def case_invalid_splits_raise_mxnets_error_too() -> None:
    with raises(mx.MXNetError, "99"):
        hvd.alltoall(mine(), [99] * hvd.size())
    if hvd.size() > 1:
        with raises(mx.MXNetError, str(hvd.size() + 1)):
            hvd.alltoall(mx.nd.ones(hvd.size() + 1))


def case_queries() -> None:
    assert hvd.mpi_built() and hvd.mpi_enabled() and hvd.mpi_threads_supported()
    built = hvd.nccl_built(), hvd.cuda_built(), hvd.rocm_built(), hvd.ddl_built(), hvd.ccl_built()
    assert not any(built)
    assert hvd.gloo_built() == hvd.gloo_enabled()
    assert hvd.local_size() == hvd.size() and hvd.is_homogeneous()
