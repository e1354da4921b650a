"""The common part of `cloudtrain.distributed.keras` and `cloudtrain.distributed.tensorflow.keras`.

``__all__`` is the list of names that both export. `load_model_with` builds the function that depends on the version of
Keras.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

import tensorflow as tf

from cloudtrain.distributed._names import *
from cloudtrain.distributed.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from cloudtrain.distributed.numpy._context import *
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.tensorflow import (
    Compression,
    Compressor,
    allgather_object,
    broadcast_object,
    collectives,
)
from cloudtrain.distributed.tensorflow._context import *
from cloudtrain.distributed.tensorflow.optimizer import Distributed
from cloudtrain.distributed.tensorflow.variables import broadcast_global_variables, broadcast_variables

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


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: type[Compressor] = Compression.none,
) -> Any:
    """Reduce a number, list or array across ranks, as a tensor. The default is Average; ``average=False`` is Sum."""
    chosen = op if op is not None else Sum if average is False else Average
    return collectives.allreduce(
        tf.convert_to_tensor(value),
        op=chosen,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
        name=name,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Concatenate all ranks' values along the first dimension, in which they may differ."""
    return collectives.allgather(tf.convert_to_tensor(value), name)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the root's ``value`` as a tensor."""
    return collectives.broadcast(tf.convert_to_tensor(value), root_rank, name)


def reducescatter(value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
    """Return this rank's rows of the reduced ``value``."""
    return collectives.reducescatter(tf.convert_to_tensor(value), op=op, name=name)


def load_model_with(keras: Any) -> Callable[..., Any]:
    """Return ``load_model`` for the module ``keras``."""

    def load_model(
        filepath: Any,
        custom_optimizers: Sequence[type[Any]] | None = None,
        custom_objects: Mapping[str, Any] | None = None,
        compression: type[Any] = Compression.none,
        legacy_opts: bool = False,
    ) -> Any:
        """Load a saved model, and make its optimizer a `DistributedOptimizer`. The optimizer keeps its saved state.

        With several ranks, the model is trained without XLA, however it was compiled before it was saved.

        Args:
            filepath: Passed to ``keras.models.load_model``. Every rank reads it.
            custom_optimizers: Optimizer classes that are not part of Keras.
            custom_objects: Other classes and functions by name.
            compression: Applied to gradients while they are sent.
            legacy_opts: Accepted for compatibility. The file records the type of the optimizer.
        """
        known = {cls.__name__: cls for cls in custom_optimizers or ()}
        model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and not isinstance(optimizer, Distributed):  # custom_objects may return one
            DistributedOptimizer(optimizer, compression=compression)
        if size() > 1 and getattr(model, "jit_compile", False):
            model.jit_compile = False
        return model

    return load_model
