"""Horovod's operations on tensors, variables and IndexedSlices, in eager mode and in graphs.

Operations are matched by kind and ``name``, operations without a name by program order. Unless stated otherwise,
tensors have the same type and shape on all ranks.

All functions raise NotInitialized before ``init``, InvalidArgument (also a tf.errors.InvalidArgumentError and a
ValueError) for an invalid argument, and CollectiveError (also a tf.errors.FailedPreconditionError) if the ranks
disagree, if a rank died, or if a rank did not call the operation in time. Errors raised while a graph runs have these
classes, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow as tf

from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, ScaledOp, Sum, chosen_op, known_op
from cloudtrain.distributed.sharding import even_splits
from cloudtrain.distributed.tensorflow._bridge import (
    Compression,
    checked_device,
    device_for_slices,
    operation,
    operation_name,
    placed,
)
from cloudtrain.distributed.tensorflow._context import global_process_set
from cloudtrain.distributed.tensorflow._differentiable import (
    broadcast_tensor,
    exchange_rows,
    gather_tensors,
    no_op,
    reduce_scatter,
    reduce_tensors,
)
from cloudtrain.distributed.tensorflow._errors import UnsupportedSlices

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]


@operation
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduce ``tensor`` across ranks.

    The gradient of a sum or an average is the sum or the average of the ranks' gradients.

    Args:
        tensor: IndexedSlices are gathered: the result holds the slices of all ranks.
        average: Deprecated; use ``op``.
        device_dense: The device that reduces; the default leaves tensors where they are.
        device_sparse: The same for IndexedSlices. Those on a GPU are gathered in host memory, with one warning.
        compression: Applied to the tensor while it is sent.
        op: Average (the default), Sum, Adasum (Gloo only), Min, Max or Product; for IndexedSlices, Average or Sum.
            An average of integers is rounded towards zero.
        prescale_factor: Multiplies the input before the reduction.
        postscale_factor: Multiplies the result.
        ignore_name_scope: Accepted for compatibility. Name scopes are never added.
    """
    return grouped_allreduce(
        [tensor],
        average,
        device_dense,
        device_sparse,
        compression,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        ignore_name_scope,
        name,
    )[0]


@operation
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduce several tensors across ranks in one operation. See `allreduce`."""
    return reduce_group(
        tensors,
        device_dense,
        device_sparse,
        compression,
        ScaledOp(chosen_op(op, average), float(prescale_factor), float(postscale_factor)),
        process_set,
        name,
    )


@operation
def reduce_group(
    tensors: Sequence[Any],
    device_dense: str,
    device_sparse: str,
    compression: type[Compressor],
    how: ScaledOp,
    process_set: ProcessSet,
    name: str | None,
    then: Callable[[], None] = no_op,
    must_match: Mapping[str, Any] | None = None,
) -> list[Any]:
    """`grouped_allreduce` that calls ``then`` in the thread that waited, except where GPUs reduce.

    Args:
        must_match: What else must be the same on all ranks. Not compared between GPUs. For slices, it becomes part of
            the name.
    """
    results = [one if isinstance(one, tf.IndexedSlices) else tf.convert_to_tensor(one) for one in tensors]
    sparse = [n for n, one in enumerate(results) if isinstance(one, tf.IndexedSlices)]
    dense = [n for n, one in enumerate(results) if not isinstance(one, tf.IndexedSlices)]
    if sparse:
        if how not in (ScaledOp(Average), ScaledOp(Sum)):
            raise UnsupportedSlices(
                f"IndexedSlices support Average and Sum without factors only, not op={how.op.name}",
                hint="Use tf.convert_to_tensor; for an optimizer or a tape, sparse_as_dense=True.",
            )
        slices = [results[n] for n in sparse]
        with checked_device(device_sparse):
            device = device_for_slices(slices, device_sparse)
        with checked_device(device):
            matched = name and ", ".join([name, *(f"{k} {v}" for k, v in (must_match or {}).items())])
            gathered_slices = _gather_slices(
                slices, how.op, matched, process_set, device, no_op if dense else then
            )
        for n, one in zip(sparse, gathered_slices):
            results[n] = one
    if dense:
        with checked_device(device_dense):
            pairs = [compression.compress(one) for one in placed([results[n] for n in dense], device_dense)]
            wires = [wire for wire, _ in pairs]
            matched = operation_name(name, "allreduce", wires)
            reduced = reduce_tensors(wires, how, matched, process_set, then, must_match)
            for n, one, (_, context) in zip(dense, reduced, pairs):
                results[n] = compression.decompress(one, context)
    return results


@operation
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenate all ranks' tensors along the first dimension, in which they may differ.

    A scalar counts as one row. The gradient is averaged across ranks, and each rank takes its own rows.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@operation
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`allgather` of several tensors in one operation."""
    given = [tf.convert_to_tensor(one) for one in tensors]
    return gather_tensors(given, operation_name(name, "allgather", given), process_set)


@operation
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's ``tensor``. On the root, the gradient is the average over all ranks; elsewhere it is zero."""
    given = tf.convert_to_tensor(tensor)
    return broadcast_tensor(given, root_rank, operation_name(name, "broadcast", [given]), process_set)


@operation
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the first ``splits[0]`` rows of ``tensor`` to rank 0, the next ``splits[1]`` to rank 1, ...

    Args:
        tensor: Of the same type on all ranks, and the same shape except for the first dimension.
        splits: One integer for each rank of the set; None divides the rows evenly.

    Returns:
        The rows received, in order of source rank; with ``splits``, a pair of these rows and the number of rows from
        each rank (int32).
    """
    given = tf.convert_to_tensor(tensor)
    chosen = tf.convert_to_tensor(_even(given, process_set) if splits is None else splits)
    rows, counts = exchange_rows(given, chosen, operation_name(name, "alltoall", [given]), process_set)
    return rows if splits is None else (rows, counts)


@operation
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce ``tensor`` across ranks and scatter the rows of the result.

    Rows are divided as evenly as possible; the first ranks get one more. ``op`` is Average or Sum.
    """
    how = ScaledOp(known_op(op), float(prescale_factor), float(postscale_factor))
    return _scatter([tensor], device_dense, compression, how, name, process_set)[0]


@operation
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """`reducescatter` of several tensors in one operation."""
    how = ScaledOp(known_op(op), float(prescale_factor), float(postscale_factor))
    return _scatter(tensors, device_dense, compression, how, None, process_set)


def _scatter(
    tensors: Sequence[Any],
    device: str,
    compression: type[Compressor],
    how: ScaledOp,
    name: str | None,
    process_set: ProcessSet,
) -> list[Any]:
    with checked_device(device):
        given = [tf.convert_to_tensor(one) for one in tensors]
        pairs = [compression.compress(one) for one in placed(given, device)]
        wires = [wire for wire, _ in pairs]
        matched = operation_name(name, "reducescatter", wires)
        results = reduce_scatter(wires, how, matched, process_set)
        return [compression.decompress(one, context) for one, (_, context) in zip(results, pairs)]


def _gather_slices(
    slices: Sequence[Any],
    op: ReduceOp,
    name: str | None,
    process_set: ProcessSet,
    device: str,
    then: Callable[[], None],
) -> list[Any]:
    """Gather all ranks' slices in one operation. IndexedSlices represent the sum of their slices."""
    parts = placed([part for one in slices for part in (one.values, one.indices)], device)
    matched = operation_name(name, "allreduce", parts)
    joined = gather_tensors(parts, None if matched is None else f"{matched} (slices)", process_set, then)
    if op == Average:  # as in Horovod, integers become fractions, too
        joined[::2] = [values / tf.cast(process_set.size(), values.dtype) for values in joined[::2]]
    return [
        tf.IndexedSlices(values, indices, one.dense_shape)
        for one, values, indices in zip(slices, joined[::2], joined[1::2])
    ]


def _even(tensor: Any, process_set: ProcessSet) -> Any:
    rows, size = tensor.shape[0] if tensor.shape.rank else None, process_set.size()
    if rows is not None:
        return even_splits(rows, size)
    return tf.fill([size], tf.shape(tensor)[0] // size)
