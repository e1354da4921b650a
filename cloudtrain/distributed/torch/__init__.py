"""Horovod's API on ``torch.distributed``.

    import cloudtrain.distributed.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

A plain ``python train.py`` runs as a single rank.
"""

import cloudtrain.distributed.torch._oldest  # noqa: F401 - first: it refuses a PyTorch that is too old
from cloudtrain.distributed import _names
from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed._names import *
from cloudtrain.distributed.errors import GradientOrderError
from cloudtrain.distributed.torch import (
    _init,
    _state,
    collectives,
    differentiable,
    elastic,
    functions,
    objects,
)
from cloudtrain.distributed.torch._init import *
from cloudtrain.distributed.torch._join import join
from cloudtrain.distributed.torch._launches import Handle
from cloudtrain.distributed.torch._operation import same_order
from cloudtrain.distributed.torch._state import *
from cloudtrain.distributed.torch.collectives import *
from cloudtrain.distributed.torch.compression import Compression
from cloudtrain.distributed.torch.differentiable import *
from cloudtrain.distributed.torch.functions import *
from cloudtrain.distributed.torch.objects import *
from cloudtrain.distributed.torch.optimizer import DistributedOptimizer
from cloudtrain.distributed.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    "Compression",
    "Compressor",
    "DistributedOptimizer",
    "GradientOrderError",
    "Handle",
    "SyncBatchNorm",
    "elastic",
    "join",
    "same_order",
]
__all__ += _names.__all__
__all__ += _init.__all__
__all__ += _state.__all__
__all__ += collectives.__all__
__all__ += differentiable.__all__
__all__ += functions.__all__
__all__ += objects.__all__
__all__.sort()
