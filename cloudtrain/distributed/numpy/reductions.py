"""allreduce and reducescatter on arrays.

An array is what ``numpy.asarray`` takes; results are NumPy arrays of its type, the same on all ranks, bit for
bit. Ranks may call in different orders: operations are matched by kind and ``name``, those without a name by
their order.

All raise NotInitialized before ``init``, InvalidArgument (a ValueError too) for arguments that are wrong in
themselves and for a name that is under way already, and, when waited for, CollectiveError: the ranks disagree
in shape, type, operation or a factor; one of them has died; or one has not come in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import (
    Array,
    back_into,
    from_wire,
    plain,
    plain_list,
    to_wire,
    writable,
)
from cloudtrain.distributed.numpy._handle import Handle, only
from cloudtrain.distributed.numpy._reduction import checked_op
from cloudtrain.distributed.numpy._session import among, global_process_set
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
    """Start to reduce ``array`` over the ranks; ``array`` is not changed.

    Args:
        array: of the same shape and type on all ranks.
        op: Average, Sum, Adasum (over Gloo only), Min, Max or Product. An average of integers is rounded
            towards zero.
        prescale_factor: multiplied before the reduction.
        postscale_factor: multiplied after it.
    """
    factors = prescale_factor, postscale_factor
    return only(_reduce([plain(array)], name, op, *factors, process_set))


def allreduce(
    array: Any,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Reduce ``array`` over the ranks. Arguments as of `allreduce_async`."""
    factors = prescale_factor, postscale_factor
    result: Array = only(_reduce([plain(array)], name, op, *factors, process_set)).wait()
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
    """`allreduce_async` in place; ``array`` may not be touched before `synchronize`."""
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
    """Reduce ``array`` over the ranks in place. Arguments as of `allreduce_async`."""
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
    """`allreduce_async` of several arrays as one operation; the result is their list."""
    return _reduce(plain_list(arrays), name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Reduce several arrays over the ranks, as one operation. Arguments as of `allreduce_async`."""
    factors = prescale_factor, postscale_factor
    result: list[Array] = _reduce(plain_list(arrays), name, op, *factors, process_set).wait()
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
    plain_list(arrays)
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
    """Reduce several arrays over the ranks in place, as one operation."""
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
    """Start to reduce ``array`` over the ranks, each of which gets its share of the rows.

    Rows are shared as evenly as can be: the first ranks get one more.

    Args:
        op: Average or Sum.
    """
    factors = prescale_factor, postscale_factor
    return only(_scatter([plain(array)], name, op, *factors, process_set))


def reducescatter(
    array: Any,
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """This rank's share of the rows of the reduced ``array``. Arguments as of `reducescatter_async`."""
    factors = prescale_factor, postscale_factor
    result: Array = only(_scatter([plain(array)], name, op, *factors, process_set)).wait()
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
    """`reducescatter_async` of several arrays as one operation; the result is their list."""
    return _scatter(plain_list(arrays), name, op, prescale_factor, postscale_factor, process_set)


def grouped_reducescatter(
    arrays: Sequence[Any],
    *,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """`reducescatter` of several arrays as one operation."""
    factors = prescale_factor, postscale_factor
    result: list[Array] = _scatter(plain_list(arrays), name, op, *factors, process_set).wait()
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
    handle = among(process_set).allreduce(
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
    handle = among(process_set).allreduce(
        wires, checked_op(op, arrays), name, prescale, postscale, process_set, in_place=True
    )
    return handle.then(lambda results: list(map(back_into, arrays, results)))


def _scatter(
    arrays: list[Array],
    name: str | None,
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> Handle:
    collectives = among(process_set)
    op = checked_op(op, arrays)
    if op not in (Average, Sum):
        raise InvalidArgument(f"reducescatter takes Average or Sum, not {op.name}")
    if any(array.ndim == 0 for array in arrays):
        raise InvalidArgument("reducescatter needs arrays with a first dimension, which it divides")
    wires = [to_wire(array) for array in arrays]
    handle = collectives.reducescatter(wires, op, name, prescale, postscale, process_set)
    return handle.then(lambda results: list(map(from_wire, results, arrays)))
