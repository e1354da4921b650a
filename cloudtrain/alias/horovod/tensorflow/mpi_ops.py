"""``horovod.tensorflow.mpi_ops``."""

from cloudtrain.distributed.tensorflow import *  # noqa: F403
