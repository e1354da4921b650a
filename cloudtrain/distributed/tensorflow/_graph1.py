"""Collectives in graphs of TensorFlow 1, where nothing orders them, and each waits for other ranks.

A session runs as many operations at a time as it has threads, in any order. Ranks that all wait in other ones would
wait for ever. So each collective waits in a thread of its own, and the session asks now and then.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future, TimeoutError
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from cloudtrain.distributed.numpy._arrays import Array

ASK_SECONDS = 0.001
"""How long a thread of the session is kept at a time."""

_under_way: dict[int, Future[Sequence[Array]]] = {}
_numbers = itertools.count()


def cross_in_graph_1(
    function: Callable[[list[Array]], Sequence[Array]], tensors: Sequence[Any], types: Sequence[Any]
) -> list[Any]:
    """See `cloudtrain.distributed.tensorflow._crossing.cross`."""

    def start(*arrays: Array) -> Any:
        number, future = next(_numbers), Future[Sequence[Array]]()
        _under_way[number] = future
        # copies, as TensorFlow may use the memory of its tensors again
        copies = [np.array(array) for array in arrays]
        threading.Thread(target=_run, args=(function, copies, future), daemon=True).start()
        return np.int64(number)

    number = tf.numpy_function(start, list(tensors), tf.int64)
    over = tf.while_loop(
        tf.logical_not,
        lambda _: tf.ensure_shape(tf.numpy_function(_ask, [number], tf.bool), ()),
        [tf.constant(False)],
    )
    with tf.control_dependencies([over]):
        return list(tf.numpy_function(_finish, [number], list(types)))


def _run(
    function: Callable[[list[Array]], Sequence[Array]], arrays: list[Array], future: Future[Sequence[Array]]
) -> None:
    try:
        future.set_result(function(arrays))
    except BaseException as error:
        future.set_exception(error)


def _ask(number: Any) -> Any:
    future = _under_way[int(number)]
    try:
        future.exception(ASK_SECONDS)
    except TimeoutError:
        return np.False_
    return np.True_


def _finish(number: Any) -> list[Array]:
    return [np.asarray(result) for result in _under_way.pop(int(number)).result()]
