"""Checkpoints that survive: data first, the manifest last, nothing committed is ever lost.

    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer("s3://bucket/checkpoints")
    checkpoint = checkpointer.restore()
    ...
    checkpointer.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

Standard library only until a state holds tensors; then the framework that made them.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.checkpoint._held import Shard
    from cloudtrain.checkpoint.checkpointer import Checkpoint, Checkpointer
    from cloudtrain.checkpoint.layout import is_checkpoint_key

# lazy: the runtime asks for the layout of keys only
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Checkpoint": "cloudtrain.checkpoint.checkpointer",
        "Checkpointer": "cloudtrain.checkpoint.checkpointer",
        "Shard": "cloudtrain.checkpoint._held",
        "is_checkpoint_key": "cloudtrain.checkpoint.layout",
    },
)

__all__ = ["Checkpoint", "Checkpointer", "Shard", "is_checkpoint_key"]
