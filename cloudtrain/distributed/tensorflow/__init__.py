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

from cloudtrain.distributed._compression import Compressor
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument, NotInitialized
from cloudtrain.distributed.numpy import (
    add_process_set,
    barrier,
    cross_rank,
    cross_size,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    process_set_by_id,
    rank,
    remove_process_set,
    size,
    start_timeline,
    stop_timeline,
)
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from cloudtrain.distributed.tensorflow._bridge import Compression
from cloudtrain.distributed.tensorflow._context import (
    ccl_built,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    init,
    join,
    local_rank_op,
    local_size_op,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    process_set_included_op,
    rank_op,
    rocm_built,
    shutdown,
    size_op,
)
from cloudtrain.distributed.tensorflow.collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from cloudtrain.distributed.tensorflow.optimizer import DistributedOptimizer
from cloudtrain.distributed.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from cloudtrain.distributed.tensorflow.variables import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)

HorovodInternalError = CollectiveError
"""Horovod's name for CollectiveError."""


def __getattr__(name: str) -> Any:
    """Import on first use what needs PyTorch or Keras (PEP 562)."""
    if name == "elastic":
        return import_module("cloudtrain.distributed.tensorflow.elastic")
    if name == "SyncBatchNormalization":
        return import_module("cloudtrain.distributed.tensorflow.sync_batch_norm").SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "CollectiveError",
    "Compression",
    "Compressor",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "InvalidArgument",
    "Max",
    "Min",
    "NotInitialized",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_by_id",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
