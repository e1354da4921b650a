"""allreduce and reducescatter on arrays.

An array is anything ``numpy.asarray`` accepts. Results are NumPy arrays of the same type, equal on all ranks bit
for bit. Ranks may call operations in different orders: operations are matched by kind and ``name``, operations
without a name by their order.

All functions raise NotInitialized before ``init``, and InvalidArgument (also a ValueError) for an invalid argument
or a name already in use. Waiting raises CollectiveError if the ranks disagree on shape, type, operation or factor,
if a rank died, or if a rank did not call the operation in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import (
    Array,
    as_array,
    as_arrays,
    checked_op,
    copy_back,
    from_wire,
    to_wire,
    writable,
)
from cloudtrain.distributed.numpy._backend import Handle, only
from cloudtrain.distributed.numpy._context import collectives_of, global_process_set
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum


def allreduce_async(
    array: Any,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce ``array`` across ranks. ``array`` is not changed.

    Args:
        array: Of the same shape and type on all ranks.
        op: Average, Sum, Adasum (Gloo only), Min, Max or Product. An average of integers is rounded towards zero.
        prescale_factor: Multiplies the input before the reduction.
        postscale_factor: Multiplies the result.
    """
    factors = prescale_factor, postscale_factor
    return only(_reduce([as_array(array)], name, op, *factors, process_set))


def allreduce(
    array: Any,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce ``array`` across ranks. See `allreduce_async`."""
    factors = prescale_factor, postscale_factor
    result: Array = only(_reduce([as_array(array)], name, op, *factors, process_set)).wait()
    return result


def allreduce_async_(
    array: Array,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """`allreduce_async` in place. Do not access ``array`` before `synchronize`."""
    factors = prescale_factor, postscale_factor
    return only(_reduce_in_place([writable(array)], name, op, *factors, process_set))


def allreduce_(
    array: Array,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce ``array`` across ranks in place. See `allreduce_async`."""
    factors = prescale_factor, postscale_factor
    result: Array = only(_reduce_in_place([writable(array)], name, op, *factors, process_set)).wait()
    return result


def grouped_allreduce_async(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """`allreduce_async` of several arrays in one operation. The result is a list."""
    return _reduce(as_arrays(arrays), name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Reduce several arrays across ranks in one operation. See `allreduce_async`."""
    factors = prescale_factor, postscale_factor
    result: list[Array] = _reduce(as_arrays(arrays), name, op, *factors, process_set).wait()
    return result


def grouped_allreduce_async_(
    arrays: Sequence[Array],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """`grouped_allreduce_async` in place."""
    as_arrays(arrays)
    given = [writable(array) for array in arrays]
    return _reduce_in_place(given, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_(
    arrays: Sequence[Array],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Reduce several arrays across ranks in place, in one operation."""
    handle = grouped_allreduce_async_(
        arrays,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )
    result: list[Array] = handle.wait()
    return result


def reducescatter_async(
    array: Any,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce ``array`` across ranks and scatter the rows of the result.

    Rows are divided as evenly as possible; the first ranks get one more.

    Args:
        op: Average or Sum.
    """
    factors = prescale_factor, postscale_factor
    return only(_scatter([as_array(array)], name, op, *factors, process_set))


def reducescatter(
    array: Any,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Return this rank's rows of the reduced ``array``. See `reducescatter_async`."""
    factors = prescale_factor, postscale_factor
    result: Array = only(_scatter([as_array(array)], name, op, *factors, process_set)).wait()
    return result


def grouped_reducescatter_async(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """`reducescatter_async` of several arrays in one operation. The result is a list."""
    return _scatter(as_arrays(arrays), name, op, prescale_factor, postscale_factor, process_set)


def grouped_reducescatter(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """`reducescatter` of several arrays in one operation."""
    factors = prescale_factor, postscale_factor
    result: list[Array] = _scatter(as_arrays(arrays), name, op, *factors, process_set).wait()
    return result


def _reduce(
    arrays: list[Array],
    name: str | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Handle:
    wires = [to_wire(array) for array in arrays]
    handle = collectives_of(process_set).allreduce(
        wires, checked_op(op, arrays), name, prescale, postscale, process_set, in_place=False
    )
    return handle.then(lambda results: list(map(from_wire, results, arrays)))


def _reduce_in_place(
    arrays: list[Array],
    name: str | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Handle:
    wires = [to_wire(array) for array in arrays]
    handle = collectives_of(process_set).allreduce(
        wires, checked_op(op, arrays), name, prescale, postscale, process_set, in_place=True
    )
    return handle.then(lambda results: list(map(copy_back, arrays, results)))


def _scatter(
    arrays: list[Array],
    name: str | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Handle:
    collectives = collectives_of(process_set)
    op = checked_op(op, arrays)
    if op not in (Average, Sum):
        raise InvalidArgument(f"reducescatter takes Average or Sum, not {op.name}")
    if any(array.ndim == 0 for array in arrays):
        raise InvalidArgument("reducescatter needs arrays with a first dimension to divide")
    wires = [to_wire(array) for array in arrays]
    handle = collectives.reducescatter(wires, op, name, prescale, postscale, process_set)
    return handle.then(lambda results: list(map(from_wire, results, arrays)))
