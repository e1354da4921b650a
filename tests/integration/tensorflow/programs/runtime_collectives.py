"""The GPU collectives, run on CPUs with TensorFlow's ring implementation. Has to run first in a process."""

from __future__ import annotations

from unittest import mock

import numpy as np
import tensorflow as tf
from faked import a_gpu_for_keras, a_gpu_for_tensors
from on_gpus import trained

import cloudtrain.distributed.tensorflow as hvd
from cloudtrain.distributed.reduce_op import ScaledOp
from cloudtrain.distributed.tensorflow import _context
from cloudtrain.distributed.tensorflow._gpu import GpuCollectives

GPUS = GpuCollectives("ring")
SUM = float(sum(range(1, hvd.size() + 1)))


def own(*shape: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    return tf.cast(tf.fill(shape, hvd.rank() + 1), dtype)


def case_reductions() -> None:
    def reduce(op: hvd.ReduceOp, prescale: float = 1.0, postscale: float = 1.0) -> list[tf.Tensor]:
        return GPUS.reduce(
            [own(2, 3), own(4, dtype=tf.int32), own(5)], ScaledOp(op, prescale, postscale), None
        )

    for run in (reduce, tf.function(reduce)):
        for op, wanted in (
            (hvd.Sum, SUM),
            (hvd.Max, hvd.size()),
            (hvd.Min, 1),
            (hvd.Average, SUM / hvd.size()),
        ):
            matrix, integers, vector = run(op)
            np.testing.assert_allclose(matrix, np.full((2, 3), wanted), rtol=1e-6)
            np.testing.assert_allclose(integers, np.full(4, int(wanted)))
            np.testing.assert_allclose(vector, np.full(5, wanted), rtol=1e-6)
        np.testing.assert_allclose(run(hvd.Sum, 0.5, 4.0)[2], np.full(5, 2 * SUM))


def case_a_broadcast() -> None:
    for run in (GPUS.broadcast, tf.function(GPUS.broadcast)):
        np.testing.assert_array_equal(run(own(3), 1, "of rank 1"), np.full(3, 2))


def case_ranks_that_disagree_are_named() -> None:
    try:
        GPUS.reduce([own(hvd.rank() + 1)], ScaledOp(hvd.Sum), "two shapes")
    except hvd.CollectiveError as error:
        assert "two shapes" in str(error) and "rank 0 has" in str(error) and "rank 1 has" in str(error)
    else:
        raise AssertionError("the ranks have agreed")


def case_keras_trains_with_its_defaults() -> None:
    """Dense gradients go through TensorFlow's collectives, those of the embedding through host memory."""
    wanted = trained()
    with (
        mock.patch.object(_context, "_gpus", GPUS),
        mock.patch.object(GPUS, "reduce", wraps=GPUS.reduce) as reduce,
        a_gpu_for_keras(),
        a_gpu_for_tensors(),
    ):
        for one, other in zip(trained(), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
    assert [len(call.args[0]) for call in reduce.call_args_list] == [2], (
        "the kernel and the bias of the dense layer"
    )
