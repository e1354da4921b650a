"""Horovod's API on maintained engines.

    import cloudtrain.distributed.torch as hvd

Here stands what all frameworks share: the world as the environment tells it, a rank's share of the data, and the
errors.
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
