"""The work that `Checkpointer.save` leaves to the threads that save."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudtrain.checkpoint.sharded.saver import NO_SHARDS, Prepare, RankShards
from cloudtrain.checkpoint.tensors.framework import Leaf
from cloudtrain.checkpoint.tensors.snapshot import Buffer
from cloudtrain.storage.retry_policy import Patience


@dataclass(frozen=True)
class State:
    """The part of a state that a rank saves."""

    step: int
    document: Mapping[str, Any]
    leaves: Mapping[str, Leaf]
    metadata: Mapping[str, Any]
    shards: RankShards = NO_SHARDS


@dataclass(frozen=True)
class Task:
    """A save to be committed in the background."""

    step: int
    prepare: Prepare
    buffer: Buffer
    """Holds the snapshot; free for reuse afterwards."""
    patience: Patience
