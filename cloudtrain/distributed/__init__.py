"""Horovod's API on maintained engines.

    import cloudtrain.distributed.torch as hvd

Here stands what all frameworks share: the world as the environment tells it, and the errors.
"""

from cloudtrain.distributed.errors import (
    CollectiveError,
    GradientOrderError,
    InvalidArgument,
    NotInitialized,
)
from cloudtrain.distributed.world import World

__all__ = ["CollectiveError", "GradientOrderError", "InvalidArgument", "NotInitialized", "World"]
