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
    from cloudtrain.checkpoint.checkpointer import Checkpoint as Checkpoint, Checkpointer as Checkpointer
    from cloudtrain.checkpoint.format.layout import is_checkpoint_key as is_checkpoint_key
    from cloudtrain.checkpoint.tensors.framework import Shard as Shard

# Lazy, as the runtime needs only the layout of keys.
__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.checkpoint.checkpointer": "Checkpoint Checkpointer",
        "cloudtrain.checkpoint.format.layout": "is_checkpoint_key",
        "cloudtrain.checkpoint.tensors.framework": "Shard",
    },
)
