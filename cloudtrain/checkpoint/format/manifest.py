"""The manifest: the last object of a checkpoint, and the one that makes it exist."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.checkpoint.layout import save_prefix
from cloudtrain.errors import CheckpointError

VERSION = 1
"""Raised when an older cloudtrain could not read what this one writes."""


class Piece(NamedTuple):
    """Bytes of a tensor, from ``begin`` to ``end``; a large tensor is stored in several."""

    tensor: str
    begin: int
    end: int


@dataclass(frozen=True)
class StoredObject:
    """One object of a checkpoint."""

    key: str
    """Relative to the checkpointer's URI."""
    size: int
    """Bytes."""
    sha256: str
    pieces: tuple[Piece, ...] = ()
    """The tensors whose bytes end the object, in their order."""

    def verify(self, data: bytes) -> None:
        """Raises Damaged unless ``data`` is what was saved."""
        self.verify_digest(len(data), hashlib.sha256(data).hexdigest())

    def verify_digest(self, size: int, sha256: str) -> None:
        if size != self.size:
            raise Damaged(f"{self.key} has {size} bytes, not {self.size}")
        if sha256 != self.sha256:
            raise Damaged(f"{self.key} has not the bytes that were saved")

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> StoredObject:
        pieces = tuple(Piece(*piece) for piece in entry["pieces"])
        return cls(entry["key"], entry["size"], entry["sha256"], pieces)


@dataclass(frozen=True)
class Manifest:
    """What was saved, by whom, and under which conditions."""

    step: int
    save: str
    """Unique to one call of ``save``."""
    time: float
    """Seconds since the epoch."""
    tree: StoredObject
    tensors: tuple[StoredObject, ...]
    """Some may lie in the folders of earlier steps."""
    metrics: Mapping[str, Any]
    """Encoded as a tree."""
    world_size: int
    job: str | None
    git_commit: str | None
    versions: Mapping[str, str]

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return (self.tree, *self.tensors)

    @property
    def own_prefix(self) -> str:
        """Of the keys of what this save has written itself."""
        return save_prefix(self.step, self.save)

    def to_bytes(self) -> bytes:
        document = {
            "format": "cloudtrain-checkpoint",
            "version": VERSION,
            **vars(self),
            "tree": self.tree.to_json(),
            "tensors": [entry.to_json() for entry in self.tensors],
        }
        return json.dumps({**document, "sha256": _digest(document)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, step: int) -> Manifest:
        """The manifest of ``step``.

        Raises:
            Damaged: this is no manifest, not the one that was written, or that of another step.
            CheckpointError: a newer cloudtrain wrote it.
        """
        try:
            document = json.loads(data)
            # First, and equal in all versions: a flipped bit must not look like a version to come.
            if document.pop("sha256") != _digest(document):
                raise Damaged("its manifest has not the bytes that were written")
            version = document["version"]
            if version > VERSION:
                raise CheckpointError(
                    f"step {step} was saved in format {version}; this cloudtrain reads up to {VERSION}",
                    hint="Upgrade cloudtrain to restore it.",
                )
            fields = {name: document[name] for name in cls.__dataclass_fields__}
            fields["tree"] = StoredObject.from_json(fields["tree"])
            fields["tensors"] = tuple(map(StoredObject.from_json, fields["tensors"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"its manifest is not readable: {error!r}") from error
        if fields["step"] != step:
            raise Damaged(f"its manifest is that of step {fields['step']}")
        return cls(**fields)


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


GIVEN_UP = b'{"format": "cloudtrain-checkpoint", "given_up": true}'
"""Stands in place of a manifest, and is told from one by its size: the step can never be committed any more."""
