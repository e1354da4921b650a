"""Horovod's API on Keras 3.

import cloudtrain.distributed.keras as hvd

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), ...)
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import keras

from cloudtrain.distributed.keras import _api, callbacks
from cloudtrain.distributed.keras._api import *

load_model = _api.load_model_with(keras)

__all__ = ["callbacks", "load_model"]
__all__ += _api.__all__


def __getattr__(name: str) -> Any:
    """Import ``elastic`` on first use, because it needs PyTorch (PEP 562)."""
    if name == "elastic":
        return import_module(f"{__name__}.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
