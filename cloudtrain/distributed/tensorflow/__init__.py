"""Horovod's API on TensorFlow.

    import cloudtrain.distributed.tensorflow as hvd

    hvd.init()
    with tf.GradientTape() as tape:
        loss = ...
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    hvd.broadcast_variables(variables, root_rank=0)  # after the first step, when the optimizer has variables, too

A plain ``python train.py`` runs as one rank. CPU tensors are sent by `cloudtrain.distributed.numpy`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cloudtrain.distributed import _names
from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed._names import *
from cloudtrain.distributed.numpy import _context as numpy_context
from cloudtrain.distributed.numpy._context import *
from cloudtrain.distributed.tensorflow import _context, collectives, tape, variables
from cloudtrain.distributed.tensorflow._bridge import Compression
from cloudtrain.distributed.tensorflow._context import *
from cloudtrain.distributed.tensorflow.collectives import *
from cloudtrain.distributed.tensorflow.optimizer import DistributedOptimizer
from cloudtrain.distributed.tensorflow.tape import *
from cloudtrain.distributed.tensorflow.variables import *


def __getattr__(name: str) -> Any:
    """Import on first use what needs PyTorch or Keras (PEP 562)."""
    if name == "elastic":
        return import_module("cloudtrain.distributed.tensorflow.elastic")
    if name == "SyncBatchNormalization":
        return import_module("cloudtrain.distributed.tensorflow.sync_batch_norm").SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Compression", "Compressor", "DistributedOptimizer"]
__all__ += _names.__all__
__all__ += numpy_context.__all__
__all__ += _context.__all__
__all__ += collectives.__all__
__all__ += tape.__all__
__all__ += variables.__all__
__all__.sort()
