"""Horovod's callbacks for ``tf.keras``: Keras 3, or tf_keras with ``TF_USE_LEGACY_KERAS=1``.

All ranks pass the same ones to ``fit``, in the same order.
"""

from __future__ import annotations

from tensorflow import keras

from cloudtrain.distributed.keras import _callbacks

(
    BestModelCheckpoint,
    BroadcastGlobalVariablesCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    MetricAverageCallback,
) = _callbacks.build_callbacks(keras, __name__)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
