"""Horovod's API on maintained backends: PyTorch, NumPy, TensorFlow, Keras and MXNet.

    import cloudtrain.distributed.torch as hvd

This package holds what the frameworks share: the world as the launcher describes it, data sharding, and errors.
"""

from cloudtrain.distributed.errors import (
    CollectiveError,
    GradientOrderError,
    HostsUpdatedInterrupt,
    InvalidArgument,
    NotInitialized,
)
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.sharding import shard_indices
from cloudtrain.distributed.world import World

__all__ = [
    "CollectiveError",
    "GradientOrderError",
    "HostsUpdatedInterrupt",
    "InvalidArgument",
    "NotInitialized",
    "ProcessSet",
    "World",
    "shard_indices",
]
