"""Horovod's collectives on NumPy arrays and anything convertible to one, such as JAX arrays.

    import cloudtrain.distributed.numpy as hvd

    hvd.init()
    total = hvd.allreduce(array, op=hvd.Sum)

The backend is Gloo (needs torch) or MPI (needs mpi4py). Neither package is imported before ``init``.
"""

from cloudtrain.distributed._timeline import start_timeline, stop_timeline
from cloudtrain.distributed.errors import CollectiveError, InvalidArgument, NotInitialized
from cloudtrain.distributed.numpy._backend import Handle
from cloudtrain.distributed.numpy._context import (
    add_process_set,
    barrier,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    process_set_by_id,
    rank,
    remove_process_set,
    shutdown,
    size,
)
from cloudtrain.distributed.numpy.exchanges import (
    allgather,
    allgather_async,
    allgather_object,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    broadcast_object,
    grouped_allgather,
    grouped_allgather_async,
    poll,
    synchronize,
)
from cloudtrain.distributed.numpy.reductions import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Adasum, Average, Max, Min, Product, ReduceOp, Sum

HorovodInternalError = CollectiveError
"""Horovod's name for CollectiveError."""

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
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
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "cross_rank",
    "cross_size",
    "global_process_set",
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
    "poll",
    "process_set_by_id",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
