"""The collectives on dense tensors, with Horovod's gradients.

``then`` is called in the thread that waited for the other ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._backend import Array
from cloudtrain.distributed.numpy.collectives import reduce_arrays
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ScaledOp, Sum
from cloudtrain.distributed.tensorflow._bridge import any_rows, call_numpy, operation_name
from cloudtrain.distributed.tensorflow._context import gpus_for

try:
    from tensorflow.python.eager.record import could_possibly_record
except ImportError:  # TensorFlow 2.12 and older
    from tensorflow.python.eager.tape import could_possibly_record


def no_op() -> None:
    """Do nothing."""


def _custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Apply ``tf.custom_gradient`` only where a tape may record: it takes a third of the time of a small collective."""

    def call(*given: Any) -> Any:
        if tf.executing_eagerly() and not could_possibly_record():
            return function(*given)[0]
        return tf.custom_gradient(function)(*given)

    return call


def reduce_tensors(
    tensors: Sequence[Any],
    how: ScaledOp,
    name: str | None,
    process_set: ProcessSet,
    then: Callable[[], None] = no_op,
    must_match: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Reduce tensors across ranks in one operation. The gradient of a sum is the sum of all ranks' gradients."""

    def reduce(arrays: list[Array]) -> Sequence[Array]:
        results = reduce_arrays(arrays, name, *how, process_set=process_set, must_match=must_match).wait()
        then()
        return results

    @_custom_gradient
    def differentiable(*given: Any) -> Any:
        def gradient(*gradients: Any) -> Any:
            if how.op not in (Average, Sum):
                raise InvalidArgument(
                    f"allreduce with op={how.op.name} has no gradient",
                    hint="Apply tf.stop_gradient to the input.",
                )
            matched = operation_name(None, "allreduce", gradients)
            return reduce_tensors(gradients, how, matched, process_set)

        gpus = gpus_for(given, process_set)
        if gpus is not None:
            return tuple(gpus.reduce(given, how, name)), gradient
        return tuple(call_numpy(reduce, given, [(one.dtype, one.shape) for one in given])), gradient

    return list(differentiable(*tensors))


def gather_tensors(
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet, then: Callable[[], None] = no_op
) -> list[Any]:
    """Concatenate the ranks' tensors by rows. The gradient is averaged, and each rank takes its own rows."""

    def gather(arrays: list[Array]) -> Sequence[Array]:
        results = hvd.grouped_allgather(arrays, name=name, process_set=process_set)
        then()
        return results

    @_custom_gradient
    def differentiable(*given: Any) -> Any:
        def gradient(*gradients: Any) -> Any:
            matched = operation_name(None, "allreduce", gradients)
            averaged = reduce_tensors(gradients, ScaledOp(Average), matched, process_set)
            rows = [tf.reshape(tf.shape(tf.reshape(one, _rows_of(one)))[0], [1]) for one in given]
            counts = gather_tensors(rows, operation_name(None, "allgather", rows), process_set)
            rank = process_set.rank()
            return [
                tf.reshape(whole[tf.reduce_sum(count[:rank]) :][: count[rank]], tf.shape(one))
                for whole, count, one in zip(averaged, counts, given)
            ]

        return tuple(call_numpy(gather, given, [(one.dtype, any_rows(one)) for one in given])), gradient

    return list(differentiable(*tensors))


def broadcast_tensor(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """Return the root's tensor. Its gradient is the average of all ranks' on the root, and zero on the others."""

    def broadcast(arrays: list[Array]) -> Sequence[Array]:
        return [hvd.broadcast(arrays[0], root_rank, name=name, process_set=process_set)]

    @_custom_gradient
    def differentiable(given: Any) -> Any:
        def gradient(one: Any) -> Any:
            matched = operation_name(None, "allreduce", [one])
            [averaged] = reduce_tensors([one], ScaledOp(Average), matched, process_set)
            with tf.control_dependencies([averaged]):  # the root needs it, even if this rank does not
                return averaged if hvd.rank() == root_rank else tf.zeros_like(averaged)

        gpus = gpus_for([given], process_set)
        if gpus is not None:
            return gpus.broadcast(given, root_rank, name), gradient
        return call_numpy(broadcast, [given], [(given.dtype, given.shape)])[0], gradient

    return differentiable(tensor)


def exchange_rows(tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> tuple[Any, Any]:
    """Return the rows from every rank and their counts (int32). Gradients are sent back to where the rows came from."""

    def alltoall(arrays: list[Array]) -> Sequence[Array]:
        rows, counts = hvd.alltoall(*arrays, name=name, process_set=process_set)
        return rows, counts

    @_custom_gradient
    def differentiable(given: Any) -> Any:
        outputs = [(given.dtype, any_rows(given)), (tf.int32, (process_set.size(),))]
        rows, counts = call_numpy(alltoall, [given, splits], outputs)

        def gradient(one: Any, _: Any) -> Any:
            return exchange_rows(one, counts, operation_name(None, "alltoall", [one]), process_set)[0]

        return (rows, counts), gradient

    rows, counts = differentiable(tensor)
    return rows, tf.stop_gradient(counts)


def reduce_scatter(
    tensors: Sequence[Any], how: ScaledOp, name: str | None, process_set: ProcessSet
) -> list[Any]:
    """Return this rank's rows of the reduced tensors.

    The gradient is gathered, and for a sum multiplied by the number of ranks, as in Horovod.
    """

    def scatter(arrays: list[Array]) -> Sequence[Array]:
        return hvd.grouped_reducescatter(arrays, name=name, process_set=process_set, **how.arguments())

    @_custom_gradient
    def differentiable(*given: Any) -> Any:
        def gradient(*gradients: Any) -> Any:
            factor = how.prescale * how.postscale * (process_set.size() if how.op == Sum else 1)
            scaled = [one * tf.cast(factor, one.dtype) for one in gradients]
            return gather_tensors(scaled, operation_name(None, "allgather", scaled), process_set)

        return tuple(call_numpy(scatter, given, [(one.dtype, any_rows(one)) for one in given])), gradient

    return list(differentiable(*tensors))


def _rows_of(tensor: Any) -> Any:
    """Return the shape of ``tensor``. A scalar counts as one row."""
    return tf.shape(tensor) if tensor.shape.rank != 0 else np.array([1])
