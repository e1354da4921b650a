"""Collectives on numbers, lists and arrays, eagerly; results are tensors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum
from cloudtrain.distributed.tensorflow import collectives
from cloudtrain.distributed.tensorflow.compression import Compression, Compressor


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: type[Compressor] = Compression.none,
) -> Any:
    """Reduce ``value`` over the ranks: its average, unless ``op`` or ``average=False``, for a sum, tells otherwise."""
    chosen = op if op is not None else Sum if average is False else Average
    return collectives.allreduce(
        tf.convert_to_tensor(value),
        op=chosen,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        name=name,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """All ranks' values, joined along the first dimension, in which they may differ."""
    return collectives.allgather(tf.convert_to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's ``value``."""
    return collectives.broadcast(tf.convert_to_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
    """This rank's rows of the reduced ``value``."""
    return collectives.reducescatter(tf.convert_to_tensor(value), op=op, name=name)
