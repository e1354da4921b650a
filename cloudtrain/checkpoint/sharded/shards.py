"""The shards of one save: what each rank stores, merged into one document, and found again in it.

A document names the shards of a tensor beside what the whole is, each with the name under which it is stored:

    "layer/weight": {"framework": ..., "dtype": ..., "itemsize": ..., "shape": [1024, 64],
                     "shards": [[[[0, 0], [512, 64]], "layer/weight[0:512,0:64]"], ...]}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cloudtrain.checkpoint._boxes import Box, problem_of
from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.checkpoint._held import Held
from cloudtrain.checkpoint._tree import Leaf
from cloudtrain.errors import CheckpointError


class Stored(NamedTuple):
    """A shard, and the name under which it is stored."""

    box: Box
    name: str


class RankShards(NamedTuple):
    """What one rank knows of the sharded tensors: each one's spec, and the shards that it stores itself."""

    specs: Mapping[str, TensorSpec]
    shards: Mapping[str, Sequence[Stored]]

    def to_json(self) -> dict[str, Any]:
        return {"specs": self.specs, "shards": self.shards}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RankShards:
        specs = {name: _spec(*fields) for name, fields in record["specs"].items()}
        return cls(specs, {name: _stored(entries) for name, entries in record["shards"].items()})


NO_SHARDS = RankShards({}, {})


def own_shards(tensors: Mapping[str, Held], taken: Collection[str]) -> tuple[RankShards, dict[str, Leaf]]:
    """The shards that this rank stores, and their tensors by the names under which they are stored.

    Memory that belongs to several tensors, such as tied weights, is stored once.

    Args:
        tensors: the sharded tensors of a state, by name.
        taken: names that other tensors have.
    """
    leaves: dict[str, Leaf] = {}
    shards: dict[str, list[Stored]] = {}
    names: dict[object, str] = {}
    for tensor, held in tensors.items():
        for box, value in held.parts if held.owned else ():
            name = f"{tensor}[{box}]"
            while name in taken:
                name += "'"
            identity = held.framework.identity(value)
            if identity is not None:
                name = names.setdefault(identity, name)
            if name not in leaves:
                spec, address = held.spec._replace(shape=box.shape), held.framework.address(value)
                leaves[name] = Leaf(spec, held.framework, value, address)
            shards.setdefault(tensor, []).append(Stored(box, name))
    return RankShards({name: held.spec for name, held in tensors.items()}, shards), leaves


def merged(document: Mapping[str, Any], ranks: Sequence[RankShards]) -> dict[str, Any]:
    """The document of rank 0, with the shards of all ranks.

    Raises:
        CheckpointError: the ranks have not the same sharded tensors, or their shards are not the whole.
    """
    first = ranks[0].specs
    for rank, shards in enumerate(ranks):
        for name, spec in shards.specs.items():
            if name not in first:
                raise CheckpointError(
                    f"rank {rank} has the sharded tensor {name!r}, and rank 0 has not",
                    hint="Give the state of the same model, with the same keys, on every rank.",
                )
            if spec != first[name]:
                raise CheckpointError(
                    f"tensor {name!r} is {_text(first[name])} on rank 0, and {_text(spec)} on rank {rank}"
                )
    tensors = dict(document["tensors"])
    for name, spec in first.items():
        stored = [entry for shards in ranks for entry in shards.shards.get(name, ())]
        problem = problem_of([entry.box for entry in stored], spec.shape)
        if problem:
            raise CheckpointError(
                f"tensor {name!r} {problem}",
                hint="Every rank gives its own shards, which together are the whole.",
            )
        tensors[name] = {**spec._asdict(), "shards": stored}
    return {**document, "tensors": tensors}


def stored_shards(document: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> dict[str, list[Stored]]:
    """For each tensor of the document the shards that are stored; of a plain one, the one that it is.

    Raises:
        Damaged: the shards of a tensor are not the whole.
    """
    found = {}
    for name, spec in specs.items():
        entries = document["tensors"][name].get("shards")
        if entries is None:
            found[name] = [Stored(Box.whole(spec.shape), name)]
            continue
        try:
            found[name] = _stored(entries)
            problem = problem_of([entry.box for entry in found[name]], spec.shape)
        except (TypeError, ValueError) as error:
            raise Damaged(f"its tree is not readable: {error!r}") from error
        if problem:
            raise Damaged(f"tensor {name!r} {problem}")
    return found


def _stored(entries: Iterable[Any]) -> list[Stored]:
    return [Stored(Box(tuple(offsets), tuple(shape)), name) for (offsets, shape), name in entries]


def _spec(framework: str, dtype: str, itemsize: int, shape: Iterable[int]) -> TensorSpec:
    return TensorSpec(framework, dtype, itemsize, tuple(shape))


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)} of {spec.framework}"
