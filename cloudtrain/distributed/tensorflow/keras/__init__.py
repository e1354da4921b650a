"""Horovod's API on ``tf.keras``: Keras 3, or tf_keras with ``TF_USE_LEGACY_KERAS=1``.

import cloudtrain.distributed.tensorflow.keras as hvd

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), ...)
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tensorflow import keras

from cloudtrain.distributed.keras import _api
from cloudtrain.distributed.keras._api import *
from cloudtrain.distributed.tensorflow.keras import callbacks

load_model = _api.load_model_with(keras)

__all__ = ["callbacks", "load_model"]
__all__ += _api.__all__


def __getattr__(name: str) -> Any:
    """Import ``elastic`` on first use, because it needs PyTorch (PEP 562)."""
    if name == "elastic":
        return import_module(f"{__name__}.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
