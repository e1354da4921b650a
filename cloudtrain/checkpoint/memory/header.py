"""The header of a copy in memory: the layout and the hashes of its bytes. Written last, once the copy is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.layout import MAX_STEP, tensors_key
from cloudtrain.checkpoint.format.manifest import StoredObject
from cloudtrain.checkpoint.format.tree import spec_from_json
from cloudtrain.checkpoint.tensors.framework import TensorSpec
from cloudtrain.contract.documents import Fields, parse_json

if TYPE_CHECKING:
    from cloudtrain.checkpoint.format.tensor_files import TensorFile

VERSION = 1
LARGEST_HEADER = 256 << 20
"""Maximum bytes: a state may have hundreds of thousands of tensors."""

SAVE = "memory"
"""Replaces the name of a save in the keys of objects in memory."""


@dataclass(frozen=True)
class Header:
    """One rank's copy of one step."""

    uri: str
    """The URI of the `Checkpointer`."""
    job: str | None
    attempt: int
    """The attempt of the job that made the copy: see `Attempt.mark`."""
    step: int
    rank: int
    world_size: int
    document: Mapping[str, Any]
    """See `cloudtrain.checkpoint.format.tree`."""
    metadata: Mapping[str, Any]
    """See `cloudtrain.checkpoint.format.manifest.run_metadata`."""
    specs: Mapping[str, TensorSpec]
    """In the order of their bytes."""
    files: Sequence[StoredObject]
    """The files of a checkpoint with these tensors, with their hashes."""
    shards: Mapping[str, Any] | None
    """`RankShards` as JSON, in a sharded save: the copies of all ranks form one checkpoint. None: this one is whole."""

    @cached_property
    def nbytes(self) -> int:
        return sum(spec.nbytes for spec in self.specs.values())

    @classmethod
    def stored(cls, step: int, rank: int | None, files: Sequence[TensorFile]) -> list[StoredObject]:
        """``files`` as they are described in a header."""
        return [
            StoredObject(tensors_key(step, SAVE, number, rank), file.size, file.sha256.hex(), file.pieces)
            for number, file in enumerate(files)
        ]

    def tensor_files(self, memory: memoryview) -> list[TensorFile]:
        """The files of a checkpoint, from the bytes of the copy. Raises Damaged if there are too few."""
        if memory.nbytes < self.nbytes:
            raise Damaged(f"has {memory.nbytes} bytes, not {self.nbytes}")
        from cloudtrain.checkpoint.format.tensor_files import tensor_file
        from cloudtrain.checkpoint.tensors.snapshot import Snapshot, spans_of

        snapshot = Snapshot(self.specs, memory, spans_of(self.specs), lambda: None)
        return [tensor_file(stored.pieces, snapshot) for stored in self.files]

    def to_bytes(self) -> bytes:
        document = {
            **vars(self),
            "version": VERSION,
            "specs": [[name, spec._asdict()] for name, spec in self.specs.items()],
            "files": [stored.to_json() for stored in self.files],
        }
        document.pop("nbytes", None)
        body = json.dumps(document).encode()
        return hashlib.sha256(body).hexdigest().encode() + b"\n" + body

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Raises Damaged if this is not what `to_bytes` returned."""
        try:
            digest, _, body = data.partition(b"\n")
            if digest.decode() != hashlib.sha256(body).hexdigest():
                raise Damaged("its header differs from what was written")
            given = Fields(parse_json(body))
            if given.integer("version") != VERSION:
                raise Damaged("another version of cloudtrain wrote it")
            header = cls(
                uri=given.text("uri"),
                job=given.text("job", None),
                attempt=given.integer("attempt"),
                step=given.integer("step", most=MAX_STEP),
                rank=given.integer("rank"),
                world_size=given.integer("world_size", least=1),
                document=given.mapping("document"),
                metadata=given.mapping("metadata"),
                specs={name: spec_from_json(record, name) for name, record in given.items("specs")},
                files=[StoredObject.from_json(record) for record in given.items("files")],
                shards=given.mapping("shards") if "shards" in given else None,
            )
            for piece in (piece for stored in header.files for piece in stored.pieces):
                if piece.end > header.specs[piece.tensor].nbytes:
                    raise ValueError(f"a piece is not in {piece.tensor}")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Damaged(f"its header is not readable: {error!r}") from error
        return header
