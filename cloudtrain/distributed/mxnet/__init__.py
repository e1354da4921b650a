"""Horovod's API on MXNet 1.9 arrays, Gluon trainers and modules.

    import cloudtrain.distributed.mxnet as hvd

    hvd.init()
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

Arrays are sent by `cloudtrain.distributed.numpy`, over MPI (needs mpi4py) or Gloo (needs torch).
"""

from cloudtrain.distributed import _names
from cloudtrain.distributed._api import BuildQueries
from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed._names import *
from cloudtrain.distributed.mxnet import collectives
from cloudtrain.distributed.mxnet.collectives import *
from cloudtrain.distributed.mxnet.collectives import allgather_object, broadcast_object, broadcast_parameters
from cloudtrain.distributed.mxnet.optimizer import Compression, DistributedOptimizer, DistributedTrainer
from cloudtrain.distributed.numpy import _context
from cloudtrain.distributed.numpy._context import *

_build = BuildQueries()
mpi_built = _build.mpi_built
mpi_enabled = _build.mpi_enabled
mpi_threads_supported = _build.mpi_threads_supported
gloo_built = _build.gloo_built
gloo_enabled = _build.gloo_enabled
nccl_built = _build.nccl_built
cuda_built = _build.cuda_built
rocm_built = _build.rocm_built
ddl_built = _build.ddl_built
ccl_built = _build.ccl_built

__all__ = [
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
]
__all__ += _names.__all__
__all__ += _context.__all__
__all__ += collectives.__all__
__all__.sort()
