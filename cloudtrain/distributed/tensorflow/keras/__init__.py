"""Horovod's API on ``tf.keras``: Keras 3, or tf_keras with ``TF_USE_LEGACY_KERAS=1``.

import cloudtrain.distributed.tensorflow.keras as hvd

hvd.init()
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size())), ...)
model.fit(data, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from tensorflow import keras

from cloudtrain.distributed.keras import _models
from cloudtrain.distributed.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from cloudtrain.distributed.keras.values import allgather, allreduce, broadcast, reducescatter
from cloudtrain.distributed.tensorflow import (
    Adasum,
    Average,
    CollectiveError,
    Compression,
    HorovodInternalError,
    InvalidArgument,
    NotInitialized,
    ProcessSet,
    Sum,
    add_process_set,
    allgather_object,
    barrier,
    broadcast_global_variables,
    broadcast_object,
    broadcast_variables,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from cloudtrain.distributed.tensorflow.keras import callbacks


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type[Any]] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: type[Any] = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model, whose optimizer is a `DistributedOptimizer` with the state that it was saved with.

    Args:
        filepath: what ``keras.models.load_model`` takes; every rank reads it.
        custom_optimizers: classes of optimizers that are not Keras's own.
        custom_objects: other classes and functions by name.
        compression: of gradients on the wire.
        legacy_opts: has no meaning here: the file tells which optimizer it is.
    """
    return _models.load(keras, filepath, custom_optimizers, custom_objects, compression)


def __getattr__(name: str) -> Any:
    """What takes PyTorch along is imported when it is first used (PEP 562)."""
    if name == "elastic":
        return import_module("cloudtrain.distributed.tensorflow.keras.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "InvalidArgument",
    "NotInitialized",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
