"""The shards of a sharded save: what each rank stores, and all of them merged into one document."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cloudtrain.checkpoint.format.tree import StoredChunk, chunks_from_json
from cloudtrain.checkpoint.tensors.chunks import coverage_problem
from cloudtrain.checkpoint.tensors.framework import Leaf, LocalShards, TensorSpec
from cloudtrain.errors import CheckpointError


class RankShards(NamedTuple):
    """The sharded tensors as one rank sees them: the spec of each, and the chunks that this rank stores."""

    specs: Mapping[str, TensorSpec]
    chunks: Mapping[str, Sequence[StoredChunk]]

    def to_json(self) -> dict[str, Any]:
        return {"specs": self.specs, "chunks": self.chunks}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RankShards:
        specs = {name: _spec(*fields) for name, fields in record["specs"].items()}
        return cls(specs, {name: chunks_from_json(chunks) for name, chunks in record["chunks"].items()})


NO_SHARDS = RankShards({}, {})


def own_shards(
    tensors: Mapping[str, LocalShards], taken: Collection[str]
) -> tuple[RankShards, dict[str, Leaf]]:
    """The chunks that this rank stores, and their tensors by the names under which they are stored.

    Memory that belongs to several tensors, such as tied weights, is stored once.

    Args:
        tensors: the sharded tensors of a state, by name.
        taken: the names of other tensors.
    """
    leaves: dict[str, Leaf] = {}
    chunks: dict[str, list[StoredChunk]] = {}
    names: dict[object, str] = {}
    for tensor, local in tensors.items():
        for chunk, value in local.chunks if local.owned else ():
            name = f"{tensor}[{chunk}]"
            while name in taken:
                name += "'"
            identity = local.framework.identity(value)
            if identity is not None:
                name = names.setdefault(identity, name)
            if name not in leaves:
                spec, address = local.spec._replace(shape=chunk.shape), local.framework.address(value)
                leaves[name] = Leaf(spec, local.framework, value, address)
            chunks.setdefault(tensor, []).append(StoredChunk(chunk, name))
    return RankShards({name: local.spec for name, local in tensors.items()}, chunks), leaves


def merged(document: Mapping[str, Any], ranks: Sequence[RankShards]) -> dict[str, Any]:
    """The document of rank 0, with the chunks of all ranks.

    Raises:
        CheckpointError: the ranks disagree on the sharded tensors, or their chunks do not cover one.
    """
    first = ranks[0].specs
    for rank, shards in enumerate(ranks):
        for name, spec in shards.specs.items():
            if name not in first:
                raise CheckpointError(
                    f"rank {rank} has the sharded tensor {name!r}, but rank 0 does not",
                    hint="Save the state of the same model, with the same keys, on every rank.",
                )
            if spec != first[name]:
                raise CheckpointError(
                    f"tensor {name!r} is {_text(first[name])} on rank 0, but {_text(spec)} on rank {rank}"
                )
    tensors = dict(document["tensors"])
    for name, spec in first.items():
        stored = [chunk for shards in ranks for chunk in shards.chunks.get(name, ())]
        problem = coverage_problem([chunk for chunk, _ in stored], spec.shape)
        if problem:
            raise CheckpointError(
                f"tensor {name!r} {problem}",
                hint="Every rank passes its own shards; together they must cover the whole tensor.",
            )
        tensors[name] = {**spec._asdict(), "shards": stored}
    return {**document, "tensors": tensors}


def _spec(framework: str, dtype: str, itemsize: int, shape: Iterable[int]) -> TensorSpec:
    return TensorSpec(framework, dtype, itemsize, tuple(shape))


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)} of {spec.framework}"
