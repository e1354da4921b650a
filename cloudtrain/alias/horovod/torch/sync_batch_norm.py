"""``horovod.torch.sync_batch_norm``."""

from cloudtrain.distributed.torch import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
