"""``horovod.mxnet.mpi_ops``."""

from cloudtrain.distributed.mxnet import *  # noqa: F403
