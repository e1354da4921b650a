"""``horovod.torch.mpi_ops``."""

from cloudtrain.distributed.torch import *  # noqa: F403
