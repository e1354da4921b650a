"""The manifest: the last object of a checkpoint, and the one that makes it exist."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloudtrain.checkpoint._errors import Damaged
from cloudtrain.errors import CheckpointError

VERSION = 1
"""Raised when an older cloudtrain could not read what this one writes."""


@dataclass(frozen=True)
class StoredObject:
    """One object of a checkpoint. ``key`` is relative to the checkpointer's URI, ``size`` in bytes."""

    key: str
    size: int
    sha256: str

    @classmethod
    def of(cls, key: str, data: bytes) -> StoredObject:
        return cls(key, len(data), hashlib.sha256(data).hexdigest())

    def verify(self, data: bytes) -> None:
        """Raises Damaged unless ``data`` is what was saved."""
        if len(data) != self.size:
            raise Damaged(f"{self.key} has {len(data)} bytes, not {self.size}")
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise Damaged(f"{self.key} has not the bytes that were saved")


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
    metrics: Mapping[str, Any]
    """Encoded as a tree."""
    world_size: int
    job: str | None
    versions: Mapping[str, str]

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return (self.tree, *self.tensors)

    def to_bytes(self) -> bytes:
        document = {"format": "cloudtrain-checkpoint", "version": VERSION, **asdict(self)}
        return json.dumps({**document, "sha256": _digest(document)}, indent=1).encode()

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
            fields["tree"] = StoredObject(**fields["tree"])
            fields["tensors"] = tuple(StoredObject(**entry) for entry in fields["tensors"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"its manifest is not readable: {error!r}") from error
        if fields["step"] != step:
            raise Damaged(f"its manifest is that of step {fields['step']}")
        return cls(**fields)


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
