"""``horovod.torch.optimizer``."""

from cloudtrain.distributed.torch import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
