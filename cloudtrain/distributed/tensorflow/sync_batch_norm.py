"""Batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.tensorflow.collectives import allreduce


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """``BatchNormalization`` whose mean and variance, in training, are those of all ranks' batches together.

    Batches are of the same size on all ranks. Arguments as of the layer's base.

    Raises:
        InvalidArgument: ``fused`` is not False: a fused operation computes its moments itself.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise InvalidArgument("SyncBatchNormalization does not support fused=True.")
        if hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used"):  # tf_keras; Keras 3 has none
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if hvd.size() == 1:
            return mean, variance
        # Var[x] = E[x^2] - E[x]^2, and both expectations are averages over the ranks.
        own = tf.stack([mean, variance + tf.square(mean)])
        mean, of_squares = tf.unstack(allreduce(own, name=f"SyncBatchNormalization {self.name}"))
        return mean, of_squares - tf.square(mean)
