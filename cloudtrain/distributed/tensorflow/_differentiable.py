"""The collectives on dense tensors, with the gradients that Horovod gives them.

``then`` is called in the thread that has waited for the other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum
from cloudtrain.distributed.tensorflow._crossing import cross, operation_name, rows_unknown
from cloudtrain.distributed.tensorflow._session import gpus_for


def nothing() -> None:
    """What is to be done where there is nothing to do."""


def reduced(
    tensors: Sequence[Any],
    op: ReduceOp,
    name: str | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    then: Callable[[], None] = nothing,
) -> list[Any]:
    """All ranks' tensors, reduced as one operation. The gradient of a sum is the sum of the ranks' gradients."""
    factors = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale}

    def reduce(arrays: list[Array]) -> Sequence[Array]:
        results = hvd.grouped_allreduce(arrays, name=name, process_set=process_set, **factors)  # type: ignore[arg-type]
        then()
        return results

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(*given: Any) -> Any:
        def gradient(*gradients: Any) -> Any:
            if op not in (Average, Sum):
                raise InvalidArgument(
                    f"allreduce with op={op.name} has no gradient",
                    hint="Use tf.stop_gradient before the call.",
                )
            matched = operation_name(None, "allreduce", gradients)
            return reduced(gradients, op, matched, prescale, postscale, process_set)

        gpus = gpus_for(given, process_set)
        if gpus is not None:
            return tuple(gpus.reduce(given, op, name, prescale, postscale)), gradient
        return tuple(cross(reduce, given, [(one.dtype, one.shape) for one in given])), gradient

    return list(differentiable(*tensors))


def gathered(
    tensors: Sequence[Any], name: str | None, process_set: ProcessSet, then: Callable[[], None] = nothing
) -> list[Any]:
    """All ranks' tensors, joined along the first dimension. The gradient is averaged, and each takes its rows."""

    def gather(arrays: list[Array]) -> Sequence[Array]:
        results = hvd.grouped_allgather(arrays, name=name, process_set=process_set)
        then()
        return results

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(*given: Any) -> Any:
        def gradient(*gradients: Any) -> Any:
            matched = operation_name(None, "allreduce", gradients)
            averaged = reduced(gradients, Average, matched, 1.0, 1.0, process_set)
            rows = [tf.reshape(tf.shape(tf.reshape(one, _rows_of(one)))[0], [1]) for one in given]
            counts = gathered(rows, operation_name(None, "allgather", rows), process_set)
            rank = process_set.rank()
            return [
                tf.reshape(whole[tf.reduce_sum(count[:rank]) :][: count[rank]], tf.shape(one))
                for whole, count, one in zip(averaged, counts, given)
            ]

        return tuple(cross(gather, given, [(one.dtype, rows_unknown(one)) for one in given])), gradient

    return list(differentiable(*tensors))


def sent(tensor: Any, root_rank: int, name: str | None, process_set: ProcessSet) -> Any:
    """The root's tensor. Its gradient is the average of all, and zero elsewhere."""

    def broadcast(arrays: list[Array]) -> Sequence[Array]:
        return [hvd.broadcast(arrays[0], root_rank, name=name, process_set=process_set)]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(given: Any) -> Any:
        def gradient(one: Any) -> Any:
            matched = operation_name(None, "allreduce", [one])
            [averaged] = reduced([one], Average, matched, 1.0, 1.0, process_set)
            with tf.control_dependencies([averaged]):  # the root waits for it, though this rank needs it not
                return averaged if hvd.rank() == root_rank else tf.zeros_like(averaged)

        gpus = gpus_for([given], process_set)
        if gpus is not None:
            return gpus.broadcast(given, root_rank, name), gradient
        return cross(broadcast, [given], [(given.dtype, given.shape)])[0], gradient

    return differentiable(tensor)


def exchanged(tensor: Any, splits: Any, name: str | None, process_set: ProcessSet) -> tuple[Any, Any]:
    """Rows from every rank, and how many came from each, as int32. The gradient goes back where its rows are from."""

    def alltoall(arrays: list[Array]) -> Sequence[Array]:
        rows, counts = hvd.alltoall(*arrays, name=name, process_set=process_set)
        return rows, counts

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(given: Any) -> Any:
        outputs = [(given.dtype, rows_unknown(given)), (tf.int32, (process_set.size(),))]
        rows, counts = cross(alltoall, [given, splits], outputs)

        def gradient(one: Any, _: Any) -> Any:
            return exchanged(one, counts, operation_name(None, "alltoall", [one]), process_set)[0]

        return (rows, counts), gradient

    rows, counts = differentiable(tensor)
    return rows, tf.stop_gradient(counts)


def scattered(
    tensors: Sequence[Any],
    op: ReduceOp,
    name: str | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[Any]:
    """This rank's rows of the reduced tensors.

    The gradient is gathered, and that of a sum times the number of ranks, as in Horovod.
    """
    factors = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale}

    def scatter(arrays: list[Array]) -> Sequence[Array]:
        return hvd.grouped_reducescatter(arrays, name=name, process_set=process_set, **factors)  # type: ignore[arg-type]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def differentiable(*given: Any) -> Any:
        def gradient(*gradients: Any) -> Any:
            factor = prescale * postscale * (process_set.size() if op == Sum else 1)
            scaled = [one * tf.cast(factor, one.dtype) for one in gradients]
            return gathered(scaled, operation_name(None, "allgather", scaled), process_set)

        return tuple(cross(scatter, given, [(one.dtype, rows_unknown(one)) for one in given])), gradient

    return list(differentiable(*tensors))


def _rows_of(tensor: Any) -> Any:
    """The shape of ``tensor``, which counts as one row where it has no dimensions."""
    return tf.shape(tensor) if tensor.shape.rank != 0 else np.array([1])
