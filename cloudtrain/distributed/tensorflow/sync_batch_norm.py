"""Batch normalization across ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.tensorflow.collectives import allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """``BatchNormalization`` that, in training, uses the mean and variance of the batches of all ranks.

    All ranks have batches of the same size. Takes the arguments of ``BatchNormalization``.

    Raises:
        InvalidArgument: ``fused`` is not False. A fused operation computes its moments internally.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise InvalidArgument("SyncBatchNormalization does not support fused=True.")
        if hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used"):  # tf_keras only
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if hvd.size() == 1:
            return mean, variance
        # Var[x] = E[x^2] - E[x]^2, where both expectations average across ranks.
        own = tf.stack([mean, variance + tf.square(mean)])
        mean, of_squares = tf.unstack(allreduce(own, name=f"SyncBatchNormalization {self.name}"))
        return mean, of_squares - tf.square(mean)
