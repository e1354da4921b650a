"""Horovod's callbacks for ``tf.keras``: Keras 3, or tf_keras with ``TF_USE_LEGACY_KERAS=1``.

All ranks give the same ones to ``fit``, in the same order.
"""

from __future__ import annotations

from tensorflow import keras

from cloudtrain.distributed.keras import _callbacks
from cloudtrain.distributed.keras._callbacks import with_base

_Callback = keras.callbacks.Callback

BroadcastGlobalVariablesCallback = with_base(_callbacks.BroadcastGlobalVariablesCallback, _Callback, __name__)
MetricAverageCallback = with_base(_callbacks.MetricAverageCallback, _Callback, __name__)
LearningRateScheduleCallback = with_base(_callbacks.LearningRateScheduleCallback, _Callback, __name__)
LearningRateWarmupCallback = with_base(_callbacks.LearningRateWarmupCallback, _Callback, __name__)
BestModelCheckpoint = with_base(_callbacks.BestModelCheckpoint, keras.callbacks.ModelCheckpoint, __name__)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
