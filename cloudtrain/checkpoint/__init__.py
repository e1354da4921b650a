"""Durable checkpoints: data first, the manifest last, and nothing committed is ever lost.

    from cloudtrain.checkpoint import Checkpointer

    checkpointer = Checkpointer("s3://bucket/checkpoints")
    checkpoint = checkpointer.restore()
    ...
    checkpointer.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

Uses only the standard library until a state holds tensors; then the framework that made them.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.checkpoint.checkpointer import Checkpoint, Checkpointer
    from cloudtrain.checkpoint.format.layout import is_checkpoint_key
    from cloudtrain.checkpoint.tensors.framework import Shard

# Lazy, as the runtime needs only the layout of keys.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Checkpoint": "cloudtrain.checkpoint.checkpointer",
        "Checkpointer": "cloudtrain.checkpoint.checkpointer",
        "Shard": "cloudtrain.checkpoint.tensors.framework",
        "is_checkpoint_key": "cloudtrain.checkpoint.format.layout",
    },
)

__all__ = ["Checkpoint", "Checkpointer", "Shard", "is_checkpoint_key"]
