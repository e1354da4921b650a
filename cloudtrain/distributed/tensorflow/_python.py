"""Python functions that wait for other ranks, as operations of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.tensorflow._errors import remembered_errors


def waiting_function(
    function: Callable[..., Sequence[Array]], tensors: Sequence[Any], types: Sequence[Any]
) -> list[Any]:
    """Add ``function``, of arrays, to the graph. Return its results, of ``types`` and unknown shapes.

    TensorFlow runs the operations of a ``tf.function`` one after the other, in program order, which is the same on all
    ranks. A session runs those of a TensorFlow 1 graph in any order and in few threads, where those that one rank waits
    for might never start on another. So there each operation waits in its own thread.
    """

    def run(*arrays: Array) -> list[Array]:
        with remembered_errors():
            return list(function(*arrays))

    if _has_program_order():
        return list(tf.numpy_function(run, list(tensors), list(types)))
    # A dataset, because its thread pool is the only one that a graph can have.
    given = tuple(tensors) or (tf.constant(0),)  # a dataset has at least one tensor

    def element(*parts: Any) -> tuple[Any, ...]:
        return tuple(tf.numpy_function(run, parts[: len(tensors)], list(types)))

    shape = {"output_types": list(types), "output_shapes": [tf.TensorShape(None)] * len(types)}
    mapped = tf.data.Dataset.from_tensors(given).map(element)
    threaded = tf.raw_ops.PrivateThreadPoolDataset(
        input_dataset=tf.data.experimental.to_variant(mapped), num_threads=1, **shape
    )
    return list(tf.raw_ops.DatasetToSingleElement(dataset=threaded, **shape))


def check_not_compiled() -> None:
    """Raises InvalidArgument if XLA will compile the current graph: it can neither wait nor call Python."""
    from tensorflow.python.ops import control_flow_util

    if tf.executing_eagerly() or not control_flow_util.GraphOrParentsInXlaContext(
        tf.compat.v1.get_default_graph()
    ):
        return
    raise InvalidArgument(
        "a collective cannot run in a function that XLA compiles (jit_compile=True)",
        hint="Leave out jit_compile=True. For a Keras model that was loaded: model.jit_compile = False.",
    )


def _has_program_order() -> bool:
    """Whether the outermost graph is a ``tf.function``'s."""
    with tf.init_scope():
        return bool(tf.executing_eagerly())
