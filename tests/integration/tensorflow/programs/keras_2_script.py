"""A script for Horovod and Keras 2. Makes the calls that Keras 3 removed, and prints their tracebacks."""

from __future__ import annotations

import traceback
from typing import Any

import horovod.tensorflow.keras as hvd  # type: ignore[import-not-found]
import numpy as np
import tensorflow as tf

MARK = "=== "


def variables() -> None:
    hvd.broadcast_variables(tf.keras.optimizers.SGD(0.1).variables(), root_rank=0)


def compiled(optimizer: Any) -> Any:
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    model.compile(hvd.DistributedOptimizer(optimizer), "mse", experimental_run_tf_function=False)
    return model


def experimental_run_tf_function() -> None:
    compiled(tf.keras.optimizers.SGD(0.1)).fit(
        np.ones((4, 2)),
        np.ones((4, 1)),
        verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.1, warmup_epochs=1),
        ],
    )


def legacy_optimizer() -> None:
    compiled(tf.keras.optimizers.legacy.SGD(lr=0.1, decay=1e-3)).fit(
        np.ones((4, 2)), np.ones((4, 1)), verbose=0
    )


def fit_generator() -> None:
    batches = iter([(np.ones((4, 2)), np.ones((4, 1)))] * 3)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit_generator(batches, steps_per_epoch=2, verbose=0)


def learning_rate() -> None:
    tf.keras.optimizers.SGD(lr=0.1)


if __name__ == "__main__":
    hvd.init()
    for call in (variables, experimental_run_tf_function, legacy_optimizer, fit_generator, learning_rate):
        print(f"{MARK}{call.__name__}", flush=True)
        try:
            call()
        except Exception:
            print(traceback.format_exc(), flush=True)
        else:
            print("it ran", flush=True)
