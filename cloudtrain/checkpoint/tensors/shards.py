"""The part of a tensor that this rank holds: all of it, or some of its shards."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.checkpoint.errors import Unsupported
from cloudtrain.checkpoint.tensors.chunks import Chunk
from cloudtrain.checkpoint.tensors.framework import LocalShards, framework_named, framework_of
from cloudtrain.errors import CheckpointError


@dataclass(frozen=True, eq=False)
class Shard:
    """This rank's part of an array that is spread over several ranks, for ``Checkpointer(sharded=True)``.

    Put it in the state at the same place on every rank; it represents the whole array. The parts of all ranks
    must cover the array without overlap; a part may be empty.

    Args:
        array: a NumPy array or a plain torch tensor.
        shape: the shape of the whole array.
        offsets: where this part begins in the whole array, per dimension.

    Raises:
        CheckpointError: the part does not fit into the whole array.
    """

    array: Any
    shape: Sequence[int]
    offsets: Sequence[int]

    def __post_init__(self) -> None:
        part = tuple(self.array.shape)
        fits = len(part) == len(self.shape) == len(self.offsets) and all(
            0 <= begin <= limit - length for begin, length, limit in zip(self.offsets, part, self.shape)
        )
        if not fits:
            raise CheckpointError(
                f"an array of shape {list(part)} at {list(self.offsets)} does not fit into one of shape "
                f"{list(self.shape)}",
                hint="Pass the shape of the whole array and the offsets of this rank's part.",
            )


def local_shards(value: Any) -> LocalShards | None:
    """The local part of a plain or sharded tensor; None if ``value`` is neither.

    Raises:
        Unsupported: the tensor cannot be saved.
    """
    shards = sharded_tensor(value)
    framework = framework_of(value)
    if shards is not None or framework is None:
        return shards
    spec = framework.spec(value)
    return LocalShards(value, spec, framework, ((Chunk.whole(spec.shape), value),))


def sharded_tensor(value: Any) -> LocalShards | None:
    """The local part of a sharded tensor; None if ``value`` is not sharded.

    Raises:
        Unsupported: the tensor cannot be saved.
    """
    if isinstance(value, Shard):
        return _from_shard(value)
    if sys.modules.get("torch") is None:
        return None
    return framework_named("torch").sharded(value)


def _from_shard(shard: Shard) -> LocalShards:
    framework = framework_of(shard.array)
    if framework is None:
        raise Unsupported(f"a Shard of a {type(shard.array).__qualname__}")
    spec = framework.spec(shard.array)
    chunk = Chunk(tuple(map(operator.index, shard.offsets)), spec.shape)
    whole = spec._replace(shape=tuple(map(operator.index, shard.shape)))
    return LocalShards(shard, whole, framework, ((chunk, shard.array),) if chunk.size else ())
