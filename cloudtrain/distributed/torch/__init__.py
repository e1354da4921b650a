"""Horovod's API on ``torch.distributed``.

    import cloudtrain.distributed.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

A plain ``python train.py`` runs as one rank.
"""

from cloudtrain.distributed.errors import (
    CollectiveError,
    GradientOrderError,
    InvalidArgument,
    NotInitialized,
)
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._reduction import Average, Max, Min, Product, ReduceOp, Sum
from cloudtrain.distributed.torch._session import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from cloudtrain.distributed.torch.collectives import (
    allgather_async,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    poll,
    synchronize,
)
from cloudtrain.distributed.torch.compression import Compression, Compressor
from cloudtrain.distributed.torch.differentiable import allgather, allreduce, broadcast
from cloudtrain.distributed.torch.optimizer import DistributedOptimizer
from cloudtrain.distributed.torch.state import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = [
    "Average",
    "CollectiveError",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "GradientOrderError",
    "Handle",
    "InvalidArgument",
    "Max",
    "Min",
    "NotInitialized",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "shutdown",
    "size",
    "synchronize",
]
