"""The way of tensors to the collectives on NumPy arrays, and back.

On the CPU an eager tensor is a NumPy array on the same memory. In a graph the way is one operation, which has a
side effect: TensorFlow keeps the operations of a ``tf.function`` that have one in the order of the program, and that
order is the same on all ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable, TypeVar, cast

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.tensorflow._devices import check_in_host_memory
from cloudtrain.distributed.tensorflow._errors import of_tensorflow

Function = TypeVar("Function", bound=Callable[..., Any])
Output = tuple[Any, Any]
"""Type and shape of a result; None for what is not known of a shape before the operation runs."""


def cross(
    function: Callable[[list[Array]], Sequence[Array]], tensors: Sequence[Any], outputs: Sequence[Output]
) -> list[Any]:
    """What ``function`` makes of ``tensors``, given as arrays that it may not change.

    Raises:
        CollectiveError, InvalidArgument: in a graph they arrive as tf.errors.OpError, with their text in it.
        InvalidArgument: the tensors are on a GPU.
    """
    if hvd.size() > 1:
        check_in_host_memory(tensors)
    if tf.executing_eagerly():
        results = function([np.asarray(tensor) for tensor in tensors])
        return [tf.convert_to_tensor(result, dtype) for result, (dtype, _) in zip(results, outputs)]

    def run(*arrays: Array) -> list[Array]:
        return [np.asarray(result) for result in function([np.asarray(array) for array in arrays])]

    types = [dtype for dtype, _ in outputs]
    crossed = tf.numpy_function(run, list(tensors), types)
    for result, (_, shape) in zip(crossed, outputs):
        result.set_shape(shape)
    return list(crossed)


def as_written(function: Function) -> Function:
    """``function``, which AutoGraph leaves as it is: it would take the whole library of a script's calls apart."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


def operation(function: Function) -> Function:
    """``function``, an operation on tensors: `as_written`, and its errors are TensorFlow's too."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with of_tensorflow():
            return function(*args, **kwargs)

    return cast(Function, as_written(call))


def operation_name(name: str | None, kind: str, tensors: Sequence[Any]) -> str | None:
    """What ranks match an operation by: its own name, or None for its place in the order of the program.

    A graph of TensorFlow 1 has no such order: there it is the name of the tensor, as in Horovod, told apart where
    several operations take the same one.
    """
    if name is None and in_graph_1():
        unique: str = tf.compat.v1.get_default_graph().unique_name(f"{kind} {tensors[0].name}")
        return unique
    return name


def in_graph_1() -> bool:
    """Whether operations go into a graph of TensorFlow 1, and not into that of a ``tf.function``."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def rows_unknown(tensor: Any) -> Any:
    """The shape of ``tensor`` but for its first dimension; a tensor without dimensions counts as one row."""
    shape = tensor.shape
    if shape.rank is None:
        return shape
    return tf.TensorShape([None, *shape.as_list()[1:]])
