"""Collectives on arrays and objects.

An array is anything ``numpy.asarray`` accepts. Results are NumPy arrays of the same type, equal on all ranks bit
for bit. Ranks may call operations in different orders: operations are matched by kind and ``name``, operations
without a name by their order.

All functions raise NotInitialized before ``init``, and InvalidArgument (also a ValueError) for an invalid argument
or a name already in use. Waiting raises CollectiveError if the ranks disagree on shape, type, operation or factor,
if a rank died, or if a rank did not call the operation in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cloudtrain.distributed._api import same_arguments, single, synchronous
from cloudtrain.distributed._objects import purpose_of
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._backend import (
    Array,
    Handle,
    as_array,
    as_arrays,
    checked_op,
    copy_back,
    from_wire,
    to_wire,
    writable,
)
from cloudtrain.distributed.numpy._context import collectives_of, current, global_process_set
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, ScaledOp, Sum
from cloudtrain.distributed.sharding import check_splits, even_splits

__all__ = [
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]


def synchronize(handle: Handle[Any]) -> Any:
    """Wait for an asynchronous collective, and return its result."""
    if not isinstance(handle, Handle):
        raise InvalidArgument(f"synchronize takes the handle of an asynchronous collective, not {handle!r}")
    return handle.wait()


def poll(handle: Handle[Any]) -> bool:
    """Whether `synchronize` would return immediately."""
    return handle.done()


def grouped_allreduce_async(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Array]]:
    """Start to reduce each of ``arrays`` across ranks, in one operation. They are not changed.

    Args:
        arrays: Of the same shapes and types on all ranks.
        op: Average, Sum, Adasum (Gloo only), Min, Max or Product. An average of integers is rounded towards zero.
        prescale_factor: Multiplies the input before the reduction.
        postscale_factor: Multiplies the result.
    """
    return reduce_arrays(as_arrays(arrays), name, op, prescale_factor, postscale_factor, process_set)


@same_arguments(grouped_allreduce_async)
def grouped_allreduce_async_(arrays: Sequence[Array], **options: Any) -> Handle[list[Array]]:
    """`grouped_allreduce_async` in place. Do not access ``arrays`` before `synchronize`."""
    as_arrays(arrays)
    return reduce_arrays([writable(array) for array in arrays], **options, in_place=True)


def grouped_reducescatter_async(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Array]]:
    """Start to reduce each of ``arrays`` across ranks and scatter the rows of the results, in one operation.

    Rows are divided as evenly as possible; the first ranks get one more. Arguments as for `grouped_allreduce_async`,
    with Average or Sum as ``op``.
    """
    given = as_arrays(arrays)
    collectives = collectives_of(process_set)
    op = checked_op(op, given)
    if op not in (Average, Sum):
        raise InvalidArgument(f"reducescatter takes Average or Sum, not {op.name}")
    if any(array.ndim == 0 for array in given):
        raise InvalidArgument("reducescatter needs arrays with a first dimension to divide")
    how = ScaledOp(op, prescale_factor, postscale_factor)
    handle = collectives.reducescatter([to_wire(array) for array in given], how, name, process_set)
    return handle.then(lambda results: list(map(from_wire, results, given)))


def grouped_allgather_async(
    arrays: Sequence[Any], *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[list[Array]]:
    """Start to concatenate all ranks' arrays along the first dimension, in order of rank, in one operation.

    Only the first dimension may differ between ranks. A scalar counts as one row. Do not change ``arrays``
    before `synchronize`.
    """
    given = as_arrays(arrays)
    wires = [to_wire(array).reshape(array.shape or (1,)) for array in given]
    handle = collectives_of(process_set).allgather(wires, name, process_set)
    return handle.then(lambda results: list(map(from_wire, results, given)))


def broadcast_async(
    array: Any, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Start to send the root's ``array`` to all ranks. ``array`` has the same shape on all ranks and is not changed.

    Args:
        root_rank: A global rank, also with a process set.
    """
    return _broadcast(as_array(array).copy(), root_rank, name, process_set)


def broadcast_async_(
    array: Array, root_rank: int, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """`broadcast_async` in place. Do not access ``array`` before `synchronize`."""
    return _broadcast(writable(array), root_rank, name, process_set)


def alltoall_async(
    array: Any,
    splits: Any = None,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Start to send the first ``splits[0]`` rows of ``array`` to rank 0, the next ``splits[1]`` to rank 1, ...

    Args:
        array: Of the same type on all ranks, and the same shape except for the first dimension. Do not change
            it before `synchronize`.
        splits: One integer for each rank of the set; None divides the rows evenly.

    Returns:
        A handle. Its result is the rows received, in order of source rank; with ``splits``, a pair of these
        rows and the number of rows from each rank (int32).
    """
    given = as_array(array)
    collectives = collectives_of(process_set)
    rows = _splits(given, splits, process_set.size())

    def finish(pair: tuple[Array, list[int]]) -> Any:
        received = from_wire(pair[0], given)
        return received if splits is None else (received, np.array(pair[1], np.int32))

    return collectives.alltoall(to_wire(given), rows, name, process_set).then(finish)


allreduce_async = single(grouped_allreduce_async, "array")
allreduce_async_ = single(grouped_allreduce_async_, "array")
reducescatter_async = single(grouped_reducescatter_async, "array")
allgather_async = single(grouped_allgather_async, "array")

allreduce = synchronous(allreduce_async)
grouped_allreduce = synchronous(grouped_allreduce_async)
allreduce_ = synchronous(allreduce_async_)
grouped_allreduce_ = synchronous(grouped_allreduce_async_)
reducescatter = synchronous(reducescatter_async)
grouped_reducescatter = synchronous(grouped_reducescatter_async)
allgather = synchronous(allgather_async)
grouped_allgather = synchronous(grouped_allgather_async)
broadcast = synchronous(broadcast_async)
broadcast_ = synchronous(broadcast_async_)
alltoall = synchronous(alltoall_async)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    *,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's ``obj``, pickled. The ``obj`` of other ranks is ignored."""
    is_root = current().world.rank == root_rank
    objects = current().objects
    purpose = purpose_of("broadcast_object", name, root_rank)
    blob = np.frombuffer(objects.pack(obj, purpose) if is_root else bytearray(), np.uint8)
    size_name = None if name is None else f"{name} (size)"
    size = broadcast_(np.array(blob.size), root_rank, name=size_name, process_set=process_set)
    sent = blob if is_root else np.empty(size, np.uint8)
    received = broadcast_(sent, root_rank, name=name, process_set=process_set)
    return obj if is_root else objects.unpack(received.data, purpose)


def allgather_object(
    obj: Any, *, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the ``obj`` of every rank, pickled, in order of rank."""
    objects = current().objects
    purposes = [purpose_of("allgather_object", name, rank) for rank in process_set.members()]
    blob = np.frombuffer(objects.pack(obj, purposes[process_set.rank()]), np.uint8)
    return objects.unpack_all(allgather(blob, name=name, process_set=process_set).data, purposes)


def reduce_arrays(
    arrays: list[Array],
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
    must_match: Mapping[str, Any] | None = None,
) -> Handle[list[Array]]:
    """`grouped_allreduce_async` that fails unless ``must_match`` is the same on all ranks."""
    wires = [to_wire(array) for array in arrays]
    collectives = collectives_of(process_set)
    how = ScaledOp(checked_op(op, arrays), prescale_factor, postscale_factor)
    handle = collectives.allreduce(wires, how, name, process_set, in_place=in_place, must_match=must_match)
    if in_place:
        return handle.then(lambda results: list(map(copy_back, arrays, results)))
    return handle.then(lambda results: list(map(from_wire, results, arrays)))


def _broadcast(array: Array, root_rank: int, name: str | None, process_set: ProcessSet) -> Handle[Array]:
    collectives = collectives_of(process_set)
    if root_rank not in process_set.members():
        raise InvalidArgument(f"root_rank {root_rank} is not one of the ranks {process_set.members()}")
    handle = collectives.broadcast(to_wire(array), root_rank, name, process_set)
    return handle.then(lambda wire: copy_back(array, wire))


def _splits(array: Array, splits: Any, size: int) -> list[int]:
    """Return the number of rows for each rank. Raises InvalidArgument."""
    if array.ndim == 0:
        raise InvalidArgument("alltoall needs an array with a first dimension to split")
    rows = array.shape[0]
    if splits is None:
        return even_splits(rows, size)
    numbers = as_array(splits)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise InvalidArgument("alltoall: splits have to be integers, one for each rank")
    given: list[int] = numbers.tolist()
    check_splits(given, rows, size, "array")
    return given
