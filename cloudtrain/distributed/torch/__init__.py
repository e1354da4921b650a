"""Horovod's API on ``torch.distributed``.

    import cloudtrain.distributed.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

A plain ``python train.py`` runs as a single rank.
"""

from cloudtrain.distributed._compression import Compressor
from cloudtrain.distributed._timeline import start_timeline, stop_timeline
from cloudtrain.distributed.errors import (
    CollectiveError,
    GradientOrderError,
    InvalidArgument,
    NotInitialized,
)
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from cloudtrain.distributed.torch import (
    _oldest,  # noqa: F401 - first: it refuses a PyTorch that is too old
    elastic,
)
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._init import (
    add_process_set,
    init,
    process_set_by_id,
    remove_process_set,
    shutdown,
)
from cloudtrain.distributed.torch._join import join
from cloudtrain.distributed.torch._operation import same_order
from cloudtrain.distributed.torch._state import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    size,
)
from cloudtrain.distributed.torch.collectives import (
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    barrier,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    poll,
    reducescatter_async,
    sparse_allreduce_async,
    synchronize,
)
from cloudtrain.distributed.torch.compression import Compression
from cloudtrain.distributed.torch.differentiable import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from cloudtrain.distributed.torch.functions import (
    average_metrics,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from cloudtrain.distributed.torch.objects import allgather_object, broadcast_object, broadcast_object_fn
from cloudtrain.distributed.torch.optimizer import DistributedOptimizer
from cloudtrain.distributed.torch.sync_batch_norm import SyncBatchNorm

HorovodInternalError = CollectiveError
"""Horovod's name for it."""

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "GradientOrderError",
    "Handle",
    "HorovodInternalError",
    "InvalidArgument",
    "Max",
    "Min",
    "NotInitialized",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "SyncBatchNorm",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "average_metrics",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "process_set_by_id",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "same_order",
    "shutdown",
    "size",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
