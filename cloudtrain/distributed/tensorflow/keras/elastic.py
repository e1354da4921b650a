"""Trainings of ``tf.keras`` that survive lost ranks; see `cloudtrain.distributed.tensorflow.elastic`."""

from __future__ import annotations

from tensorflow import keras

from cloudtrain.distributed.keras import _elastic
from cloudtrain.distributed.keras._callbacks import with_base
from cloudtrain.distributed.tensorflow.elastic import TensorFlowKerasState as KerasState
from cloudtrain.distributed.tensorflow.elastic import run

_Callback = keras.callbacks.Callback

CommitStateCallback = with_base(_elastic.CommitStateCallback, _Callback, __name__)
UpdateBatchStateCallback = with_base(_elastic.UpdateBatchStateCallback, _Callback, __name__)
UpdateEpochStateCallback = with_base(_elastic.UpdateEpochStateCallback, _Callback, __name__)

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]
