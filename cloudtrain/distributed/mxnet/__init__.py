"""Horovod's API on MXNet 1.9 arrays, Gluon trainers and modules.

    import cloudtrain.distributed.mxnet as hvd

    hvd.init()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

Arrays are sent by `cloudtrain.distributed.numpy`, over MPI (needs mpi4py) or Gloo (needs torch).
"""

from cloudtrain.distributed._accessors import BuildQueries
from cloudtrain.distributed._compression import Compressor
from cloudtrain.distributed.mxnet.collectives import (
    InvalidSplits,
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from cloudtrain.distributed.mxnet.optimizer import (
    Compression,
    DistributedOptimizer,
    DistributedTrainer,
)
from cloudtrain.distributed.mxnet.state import allgather_object, broadcast_object, broadcast_parameters
from cloudtrain.distributed.numpy import (
    Adasum,
    Average,
    CollectiveError,
    HorovodInternalError,
    InvalidArgument,
    Max,
    Min,
    NotInitialized,
    ProcessSet,
    Product,
    ReduceOp,
    Sum,
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
    start_timeline,
    stop_timeline,
)

_build = BuildQueries()
mpi_built, mpi_enabled = _build.mpi_built, _build.mpi_enabled
mpi_threads_supported = _build.mpi_threads_supported
gloo_built, gloo_enabled = _build.gloo_built, _build.gloo_enabled
nccl_built, cuda_built, rocm_built = _build.nccl_built, _build.cuda_built, _build.rocm_built
ddl_built, ccl_built = _build.ddl_built, _build.ccl_built

__all__ = [
    "Adasum",
    "Average",
    "CollectiveError",
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "DistributedTrainer",
    "HorovodInternalError",
    "InvalidArgument",
    "InvalidSplits",
    "Max",
    "Min",
    "NotInitialized",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
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
    "grouped_allreduce_",
    "grouped_reducescatter",
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
    "process_set_by_id",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
