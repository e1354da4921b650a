"""Horovod's operations on tensors, variables and IndexedSlices, eagerly and in graphs.

Operations are matched by kind and ``name``; those without a name by their order in the program. All ranks give
tensors of the same type, and where nothing else is said of the same shape.

All raise NotInitialized before ``init``, InvalidArgument (tf.errors.InvalidArgumentError and ValueError too) for
arguments that are wrong in themselves, and CollectiveError (tf.errors.FailedPreconditionError too): the ranks disagree;
one of them has died; or one has not come in time. Inside of ``tf.function`` TensorFlow raises another tf.errors.OpError
instead, with the same text in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum, known_op
from cloudtrain.distributed.sharding import even_splits
from cloudtrain.distributed.tensorflow._crossing import operation, operation_name
from cloudtrain.distributed.tensorflow._devices import checked_device, placed
from cloudtrain.distributed.tensorflow._differentiable import (
    exchanged,
    gathered,
    nothing,
    reduced,
    scattered,
    sent,
)
from cloudtrain.distributed.tensorflow._errors import UnsupportedSlices
from cloudtrain.distributed.tensorflow._session import global_process_set
from cloudtrain.distributed.tensorflow.compression import Compression, Compressor


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
    """Reduce ``tensor`` over the ranks.

    The gradient of a sum or an average is the sum or the average of the ranks' gradients.

    Args:
        tensor: IndexedSlices are gathered: the result has the slices of all ranks.
        average: deprecated; ``op``.
        device_dense: where to reduce; see `cloudtrain.distributed.tensorflow`.
        device_sparse: the same for IndexedSlices.
        compression: of the tensor on the wire.
        op: Average (the default), Sum, Adasum (over Gloo only), Min, Max or Product. An average of integers is
            rounded towards zero. Average or Sum for IndexedSlices.
        prescale_factor: multiplied before the reduction.
        postscale_factor: multiplied after it.
        ignore_name_scope: has no meaning here: names are taken as they are.
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
    """Reduce several tensors over the ranks, as one operation. Arguments as of `allreduce`."""
    return reduce_group(
        tensors,
        device_dense,
        device_sparse,
        compression,
        _chosen_op(op, average),
        prescale_factor,
        postscale_factor,
        process_set,
        name,
    )


@operation
def reduce_group(
    tensors: Sequence[Any],
    device_dense: str,
    device_sparse: str,
    compression: type[Compressor],
    op: ReduceOp,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    name: str | None,
    then: Callable[[], None] = nothing,
) -> list[Any]:
    """`grouped_allreduce`, and then ``then`` in the thread that has waited; where GPUs reduce, none waits."""
    results = [one if isinstance(one, tf.IndexedSlices) else tf.convert_to_tensor(one) for one in tensors]
    sparse = [n for n, one in enumerate(results) if isinstance(one, tf.IndexedSlices)]
    dense = [n for n, one in enumerate(results) if not isinstance(one, tf.IndexedSlices)]
    if sparse:
        if op not in (Average, Sum) or prescale_factor != 1.0 or postscale_factor != 1.0:
            raise UnsupportedSlices(
                f"IndexedSlices can be averaged and summed only, without factors, not op={op.name}",
                hint="Use tf.convert_to_tensor, or sparse_as_dense=True of an optimizer or a tape.",
            )
        with checked_device(device_sparse):
            gathered_slices = _gather_slices(
                [results[n] for n in sparse], op, name, process_set, device_sparse, nothing if dense else then
            )
        for n, one in zip(sparse, gathered_slices):
            results[n] = one
    if dense:
        with checked_device(device_dense):
            pairs = [compression.compress(one) for one in placed([results[n] for n in dense], device_dense)]
            wires = [wire for wire, _ in pairs]
            matched = operation_name(name, "allreduce", wires)
            factors = float(prescale_factor), float(postscale_factor)
            for n, one, (_, context) in zip(
                dense, reduced(wires, op, matched, *factors, process_set, then), pairs
            ):
                results[n] = compression.decompress(one, context)
    return results


@operation
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """All ranks' tensors, joined along the first dimension, in which they may differ.

    A tensor without dimensions counts as one row. The gradient is averaged over the ranks, of which each takes the
    rows that are its own.
    """
    return grouped_allgather([tensor], name, ignore_name_scope, process_set)[0]


@operation
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`allgather` of several tensors as one operation."""
    given = [tf.convert_to_tensor(one) for one in tensors]
    return gathered(given, operation_name(name, "allgather", given), process_set)


@operation
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's ``tensor``. Its gradient is the average of all ranks', and zero on the others."""
    given = tf.convert_to_tensor(tensor)
    return sent(given, root_rank, operation_name(name, "broadcast", [given]), process_set)


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
        tensor: of the same type on all ranks, and of the same shape but for the first dimension.
        splits: integers, one for each rank of the set; None divides the rows evenly.

    Returns:
        What came from all ranks, in their order; where ``splits`` were given, a pair of that and the number of rows
        that came from each rank, as int32.
    """
    given = tf.convert_to_tensor(tensor)
    chosen = tf.convert_to_tensor(_even(given, process_set) if splits is None else splits)
    rows, counts = exchanged(given, chosen, operation_name(name, "alltoall", [given]), process_set)
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
    """Reduce ``tensor`` over the ranks, each of which gets its share of the rows.

    Rows are shared as evenly as can be: the first ranks get one more. ``op`` is Average or Sum.
    """
    pre, post = prescale_factor, postscale_factor
    return _scatter([tensor], device_dense, compression, op, name, process_set, pre, post)[0]


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
    """`reducescatter` of several tensors as one operation."""
    pre, post = prescale_factor, postscale_factor
    return _scatter(tensors, device_dense, compression, op, None, process_set, pre, post)


def _scatter(
    tensors: Sequence[Any],
    device: str,
    compression: type[Compressor],
    op: ReduceOp,
    name: str | None,
    process_set: ProcessSet,
    prescale: float,
    postscale: float,
) -> list[Any]:
    with checked_device(device):
        given = [tf.convert_to_tensor(one) for one in tensors]
        pairs = [compression.compress(one) for one in placed(given, device)]
        wires = [wire for wire, _ in pairs]
        matched = operation_name(name, "reducescatter", wires)
        results = scattered(wires, known_op(op), matched, float(prescale), float(postscale), process_set)
        return [compression.decompress(one, context) for one, (_, context) in zip(results, pairs)]


def _gather_slices(
    slices: Sequence[Any],
    op: ReduceOp,
    name: str | None,
    process_set: ProcessSet,
    device: str,
    then: Callable[[], None],
) -> list[Any]:
    """All ranks' slices; as one operation, as a sum of slices is what all of them together stand for."""
    parts = placed([part for one in slices for part in (one.values, one.indices)], device)
    matched = operation_name(name, "allreduce", parts)
    joined = gathered(parts, None if matched is None else f"{matched} (slices)", process_set, then)
    divisor = process_set.size() if op == Average else 1
    return [
        tf.IndexedSlices(values / tf.cast(divisor, values.dtype), indices, one.dense_shape)
        for one, values, indices in zip(slices, joined[::2], joined[1::2])
    ]


def _even(tensor: Any, process_set: ProcessSet) -> Any:
    rows, size = tensor.shape[0] if tensor.shape.rank else None, process_set.size()
    if rows is not None:
        return even_splits(rows, size)
    return tf.fill([size], tf.shape(tensor)[0] // size)


def _chosen_op(op: ReduceOp | None, average: bool | None) -> ReduceOp:
    """Average unless told, as in Horovod; ``average`` is its deprecated way to tell."""
    if average is None:
        return Average if op is None else known_op(op)
    if op is not None:
        raise InvalidArgument("The op parameter supersedes average. Please provide only one of them.")
    warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=5)
    return Average if average else Sum
