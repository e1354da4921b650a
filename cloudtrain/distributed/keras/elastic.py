"""Elastic training with Keras 3. See `cloudtrain.distributed.tensorflow.elastic`."""

from __future__ import annotations

import keras

from cloudtrain.distributed.keras import _callbacks
from cloudtrain.distributed.tensorflow.elastic import TensorFlowKerasState as KerasState, run

(
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
) = _callbacks.build_elastic_callbacks(keras, __name__)

__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
