"""What this rank holds of a tensor: all of it, or the shards of one that several ranks hold together."""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloudtrain.checkpoint._boxes import Box
from cloudtrain.checkpoint._errors import Unsupported
from cloudtrain.checkpoint._framework import Framework, TensorSpec, framework_of
from cloudtrain.errors import CheckpointError


@dataclass(frozen=True, eq=False)
class Shard:
    """This rank's part of an array that several ranks hold, for ``Checkpointer(sharded=True)``.

    In a state it stands for the whole array, at the same place on every rank. The parts of all ranks are the
    whole, and do not overlap; a part may be empty.

    Args:
        array: a NumPy array or a plain torch tensor.
        shape: of the whole.
        offsets: where the part begins in it, in each dimension.

    Raises:
        CheckpointError: the part does not lie in the whole.
    """

    array: Any
    shape: Sequence[int]
    offsets: Sequence[int]

    def __post_init__(self) -> None:
        parts = tuple(self.array.shape)
        fits = len(parts) == len(self.shape) == len(self.offsets) and all(
            0 <= begin <= limit - length for begin, length, limit in zip(self.offsets, parts, self.shape)
        )
        if not fits:
            raise CheckpointError(
                f"an array of shape {list(parts)} at {list(self.offsets)} is no part of one of shape "
                f"{list(self.shape)}",
                hint="Give the shape of the whole array, and where this rank's part begins in it.",
            )


class Held(NamedTuple):
    """A tensor of a state. ``value`` is what stands for it there."""

    value: Any
    spec: TensorSpec
    """Of the whole."""
    framework: Framework
    parts: tuple[tuple[Box, Any], ...]
    """What is here of it, none of them empty: a box of the whole, and the plain tensor that it is."""
    owned: bool = True
    """False where another rank holds the same parts, and is the one to save them."""

    @property
    def is_sharded(self) -> bool:
        return not (len(self.parts) == 1 and self.parts[0][1] is self.value)


def held(value: Any) -> Held | None:
    """None where ``value`` is no tensor. Raises Unsupported for one that cannot be saved."""
    shards = held_shards(value)
    framework = framework_of(value)
    if shards is not None or framework is None:
        return shards
    spec = framework.spec(value)
    return Held(value, spec, framework, ((Box.whole(spec.shape), value),))


def held_shards(value: Any) -> Held | None:
    """None where ``value`` is not sharded. Raises Unsupported for what cannot be saved."""
    if isinstance(value, Shard):
        return _held_shard(value)
    torch = sys.modules.get("torch")
    if (
        torch is None
        or type(value) in (torch.Tensor, torch.nn.Parameter)
        or not isinstance(value, torch.Tensor)
    ):
        return None
    from cloudtrain.checkpoint import _torch_shards

    return _torch_shards.held(value)


def _held_shard(shard: Shard) -> Held:
    framework = framework_of(shard.array)
    if framework is None:
        raise Unsupported(f"a Shard of a {type(shard.array).__qualname__}")
    spec = framework.spec(shard.array)
    box = Box(tuple(map(operator.index, shard.offsets)), spec.shape)
    whole = spec._replace(shape=tuple(map(operator.index, shard.shape)))
    return Held(shard, whole, framework, ((box, shard.array),) if box.size else ())
