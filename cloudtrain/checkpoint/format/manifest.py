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
from cloudtrain.checkpoint.format.layout import MAX_STEP, save_prefix, step_of
from cloudtrain.checkpoint.tensors import framework
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.environment.commits import CommitNumber, newest_commit
from cloudtrain.errors import CheckpointError
from cloudtrain.storage.uri import is_valid_key

VERSION = 1
"""Incremented when an older cloudtrain cannot read what this one writes."""

LARGEST = 2**1000
"""The largest integer allowed as a metric, so that it can be converted to a float."""

TOMBSTONE = b'{"format": "cloudtrain-checkpoint", "given_up": true}'
"""Written instead of a manifest so that the step can never be committed. Recognized by its size."""


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
        if problem := self.problem(size, sha256):
            raise Damaged(f"{self.key} {problem}")

    def problem(self, size: int, sha256: str) -> str:
        """How an object of this size and hash differs from what was saved; empty if it does not."""
        if size != self.size:
            return f"has {size} bytes, not {self.size}"
        return "" if sha256 == self.sha256 else "differs from what was saved"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, record: object) -> StoredObject:
        """The inverse of `to_json`. Raises ValueError, also for a key outside the folders of checkpoints."""
        given = Fields(record)
        key, pieces = given.text("key"), given.items("pieces", ())
        if step_of(key) is None or not is_valid_key(key):
            raise ValueError(f"{key[:200]!r} is not the key of an object of a checkpoint")
        return cls(key, given.integer("size"), given.text("sha256"), tuple(map(_piece, pieces)))


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
    run: str | None = None
    """The identity of the job, the same in all its attempts."""
    attempt: int | None = None
    """The attempt of the job that committed it; None where attempts are not counted."""
    elastic: tuple[int, ...] = CommitNumber(0, 0)
    """The last commit of elastic training before it: see `CommitNumber`."""

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return (self.tree, *self.tensors)

    @property
    def own_prefix(self) -> str:
        """The prefix of the keys that this save wrote itself."""
        return save_prefix(self.step, self.save)

    def decode_metrics(self) -> dict[str, float]:
        """Raises Damaged if they cannot be decoded."""
        metrics = tree.decode({"tree": self.metrics}, {})
        if not isinstance(metrics, dict) or not all(map(_is_metric, metrics.items())):
            raise Damaged("its metrics are not readable")
        return metrics

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
            document = parse_json(data)
            # Checked first, and in the same way in all versions: a flipped bit must not look like a future version.
            if document.pop("sha256") != _digest(document):
                raise Damaged("its manifest differs from what was written")
            version = document["version"]
            if version > VERSION:
                raise CheckpointError(
                    f"step {step} was saved in format {version}; this cloudtrain reads up to {VERSION}",
                    hint="Upgrade cloudtrain to restore it.",
                )
            manifest = cls._from_document(document)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Damaged(f"its manifest is not readable: {error!r}") from error
        if manifest.step != step:
            raise Damaged(f"its manifest belongs to step {manifest.step}")
        manifest.decode_metrics()
        return manifest

    @classmethod
    def _from_document(cls, document: object) -> Manifest:
        given = Fields(document)
        save = given.text("save")
        if not is_valid_key(save) or "/" in save:
            raise ValueError(f"{save[:200]!r} is not the name of a save")
        return cls(
            step=given.integer("step", most=MAX_STEP),
            save=save,
            time=given.time("time"),
            tree=StoredObject.from_json(given.mapping("tree")),
            tensors=tuple(map(StoredObject.from_json, given.items("tensors"))),
            metrics=given.mapping("metrics"),
            world_size=given.integer("world_size"),
            job=given.text("job", None),
            git_commit=given.text("git_commit", None),
            versions=given.text_mapping("versions"),
            run=given.text("run", None),
            attempt=given.integer("attempt", None),
            elastic=_commit_number(given.items("elastic", (0, 0))),
        )


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
        "elastic": newest_commit(),
    }


def _number(name: str, value: Any) -> int | float:
    try:
        return value if type(value) is int else float(value)
    except (TypeError, ValueError, RuntimeError):
        raise CheckpointError(
            f"metrics[{name!r}] is not a number: {value!r}",
            hint="Put anything else into the state.",
        ) from None


def _piece(record: object) -> Piece:
    """Raises ValueError."""
    if isinstance(record, list) and len(record) == 3:
        given = Fields(dict(zip(Piece._fields, record)), "pieces")
        piece = Piece(given.text("tensor"), given.integer("begin"), given.integer("end"))
        if piece.begin <= piece.end:
            return piece
    raise ValueError("a piece is not a tensor, its begin and its end")


def _commit_number(record: object) -> CommitNumber:
    """Raises ValueError."""
    if isinstance(record, (list, tuple)) and len(record) == 2:
        given = Fields(dict(zip(CommitNumber._fields, record)), "elastic")
        return CommitNumber(given.integer("run"), given.integer("commit"))
    raise ValueError("the last commit of elastic training is not two numbers")


def _is_metric(item: tuple[Any, Any]) -> bool:
    name, value = item
    is_number = isinstance(value, float) or (isinstance(value, int) and -LARGEST <= value <= LARGEST)
    return isinstance(name, str) and is_number


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
