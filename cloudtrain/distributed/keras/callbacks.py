"""Horovod's callbacks for Keras 3. All ranks pass the same ones to ``fit``, in the same order."""

from __future__ import annotations

import keras

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
