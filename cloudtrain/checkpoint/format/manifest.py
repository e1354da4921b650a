"""The manifest: the object that is written last and commits a checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from cloudtrain import environment
from cloudtrain._version import __version__
from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format import tree
from cloudtrain.checkpoint.format.layout import save_prefix
from cloudtrain.checkpoint.tensors import framework
from cloudtrain.errors import CheckpointError

VERSION = 1
"""Incremented when an older cloudtrain cannot read what this one writes."""

TOMBSTONE = b'{"format": "cloudtrain-checkpoint", "given_up": true}'
"""Written in place of a manifest so that the step can never be committed. Recognized by its size."""


class Piece(NamedTuple):
    """Bytes ``begin`` to ``end`` of a tensor; a large tensor is stored in several pieces."""

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
    """The tensor bytes at the end of the object, in order."""

    def verify(self, data: bytes) -> None:
        """Raises Damaged if ``data`` differs from what was saved."""
        self.verify_digest(len(data), hashlib.sha256(data).hexdigest())

    def verify_digest(self, size: int, sha256: str) -> None:
        if size != self.size:
            raise Damaged(f"{self.key} has {size} bytes, not {self.size}")
        if sha256 != self.sha256:
            raise Damaged(f"{self.key} differs from what was saved")

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> StoredObject:
        pieces = tuple(Piece(*piece) for piece in record["pieces"])
        return cls(record["key"], record["size"], record["sha256"], pieces)


@dataclass(frozen=True)
class Manifest:
    """The objects of a checkpoint, and the run that saved it."""

    step: int
    save: str
    """Unique to one call of ``save``."""
    time: float
    """Seconds since the epoch."""
    tree: StoredObject
    tensors: tuple[StoredObject, ...]
    """Some may be in the folders of earlier steps."""
    metrics: Mapping[str, Any]
    """Encoded as a tree; see `decode_metrics`."""
    world_size: int
    job: str | None
    git_commit: str | None
    versions: Mapping[str, str]

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return (self.tree, *self.tensors)

    @property
    def own_prefix(self) -> str:
        """The prefix of the keys that this save wrote itself."""
        return save_prefix(self.step, self.save)

    def decode_metrics(self) -> dict[str, float]:
        """Raises Damaged if they cannot be decoded."""
        return dict(tree.decode({"tree": self.metrics}, {}))

    def to_bytes(self) -> bytes:
        document = {
            "format": "cloudtrain-checkpoint",
            "version": VERSION,
            **vars(self),
            "tree": self.tree.to_json(),
            "tensors": [stored.to_json() for stored in self.tensors],
        }
        return json.dumps({**document, "sha256": _digest(document)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, step: int) -> Manifest:
        """The manifest of ``step``.

        Raises:
            Damaged: this is not a manifest, has been altered, or belongs to another step.
            CheckpointError: a newer cloudtrain wrote it.
        """
        try:
            document = json.loads(data)
            # Checked first, and the same in all versions: a flipped bit must not look like a future version.
            if document.pop("sha256") != _digest(document):
                raise Damaged("its manifest differs from what was written")
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
            raise Damaged(f"its manifest belongs to step {fields['step']}")
        return cls(**fields)


def run_metadata(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a manifest that describe the run. Raises CheckpointError for metrics that are not numbers."""
    if not isinstance(metrics, Mapping):
        raise CheckpointError(f"metrics={metrics!r} is not a mapping", hint='For example {"loss": 0.5}.')
    numbers = {name: _number(name, value) for name, value in metrics.items()}
    return {
        "time": time.time(),
        "metrics": tree.encode(numbers, "metrics")[0]["tree"],
        "world_size": environment.world_size(),
        "job": environment.job_name(),
        "git_commit": os.environ.get("CLOUDTRAIN_GIT_COMMIT"),
        "versions": {
            "cloudtrain": __version__,
            "python": platform.python_version(),
            **framework.versions(),
        },
    }


def _number(name: str, value: Any) -> int | float:
    try:
        return value if type(value) is int else float(value)
    except (TypeError, ValueError, RuntimeError):
        raise CheckpointError(
            f"metrics[{name!r}] is not a number: {value!r}",
            hint="Put anything else into the state.",
        ) from None


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
