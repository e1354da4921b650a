"""Training of Keras models on GPUs, or on CPUs where TensorFlow sees none."""

from __future__ import annotations

import os
from typing import Any

import gpus
import keras
import numpy as np
import tensorflow as tf

import cloudtrain.distributed.keras as hvd
from cloudtrain.distributed import tensorflow as hvd_tensorflow

SIZE, RANK = hvd.size(), hvd.rank()


def trained(distributed: bool = True) -> list[Any]:
    """The weights after ``fit`` of a model with dense and sparse gradients; else of one process with all rows."""
    keras.utils.set_random_seed(1)
    rows = np.random.default_rng(2).integers(0, 9, size=(4 * SIZE, 4))
    layers = [keras.layers.Embedding(10, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers])
    optimizer, batch = keras.optimizers.SGD(0.01), 2 * SIZE
    callbacks: list[Any] = []
    if distributed:
        optimizer, batch, rows = hvd.DistributedOptimizer(optimizer), 2, rows[RANK::SIZE]
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.compile(optimizer, "mse")
    model.fit(rows, np.ones((len(rows), 1), "f"), batch, verbose=0, shuffle=False, callbacks=callbacks)
    return list(model.get_weights())


def case_tensorflow_sees_a_gpu() -> None:
    if os.environ.get(gpus.DEVICE) == "cuda":
        assert tf.config.list_logical_devices("GPU"), "CLOUDTRAIN_TENSORFLOW_PYTHON needs TensorFlow for GPUs"
        assert "GPU" in hvd.allreduce(tf.ones(3)).device


def case_keras_trains_with_its_defaults() -> None:
    weights = trained()
    for one, other in zip(weights, trained(distributed=False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    assert len({b"".join(one.tobytes() for one in of_rank) for of_rank in hvd.allgather_object(weights)}) == 1


def case_errors_have_their_class() -> None:
    for run in (hvd_tensorflow.allreduce, tf.function(hvd_tensorflow.allreduce)):
        try:
            run(tf.ones(RANK + 1), name="of two shapes")
        except hvd.HorovodInternalError as error:
            assert "of two shapes" in str(error) and "rank 1" in str(error)
        else:
            assert SIZE == 1
