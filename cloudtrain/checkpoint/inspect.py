"""Lists, verifies and downloads the checkpoints of a store.

Needs none of the frameworks whose tensors the checkpoints hold.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format import tree
from cloudtrain.checkpoint.format.layout import manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import Manifest, StoredObject
from cloudtrain.checkpoint.store.catalog import Listing
from cloudtrain.checkpoint.tensors.framework import TensorSpec
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage.base import DamagedBody, ObjectInfo, Progress, Store

BLOCK = 1 << 20


@dataclass(frozen=True)
class CheckpointInfo:
    """One committed checkpoint, without reading its tensors."""

    step: int
    manifest: Manifest | None
    """None if it cannot be read."""
    problem: str = ""
    """Why it cannot be restored; empty if no problem is known."""
    newer: bool = False
    """Whether a newer cloudtrain wrote it, which is needed to read it."""

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return self.manifest.objects if self.manifest else ()

    @property
    def size(self) -> int:
        """Bytes of all its objects."""
        return sum(stored.size for stored in self.objects)

    @property
    def added(self) -> int:
        """Bytes in its own folder; the rest is in the folders of earlier steps and has not changed since."""
        return sum(stored.size for stored in self.objects if step_of(stored.key) == self.step)

    @property
    def references(self) -> tuple[int, ...]:
        """The earlier steps whose folders hold some of its objects."""
        steps = {step_of(stored.key) for stored in self.objects} - {self.step, None}
        return tuple(sorted(step for step in steps if step is not None))

    @property
    def metrics(self) -> dict[str, float]:
        return self.manifest.decode_metrics() if self.manifest else {}

    def to_dict(self) -> dict[str, Any]:
        """For JSON. ``time`` is in seconds since the epoch, sizes are in bytes."""
        record = {"step": self.step, "problem": self.problem or None}
        if self.manifest is None:
            return record
        metadata = ("time", "world_size", "job", "git_commit", "versions")
        return {
            **record,
            **{name: getattr(self.manifest, name) for name in metadata},
            "size": self.size,
            "added": self.added,
            "references": list(self.references),
            "metrics": self.metrics,
        }


@dataclass(frozen=True)
class Damage:
    """An object that is missing or differs from what was saved."""

    step: int
    key: str
    problem: str


def list_checkpoints(store: Store) -> list[CheckpointInfo]:
    """All committed checkpoints by step, with the problems that the names and sizes of objects reveal."""
    return scan(store)[0]


def find(store: Store, step: int | str = "latest") -> CheckpointInfo:
    """One checkpoint. Raises CheckpointError if it does not exist."""
    infos = {info.step: info for info in list_checkpoints(store)}
    wanted = max(infos, default=None) if step == "latest" else step
    if wanted not in infos:
        known = ", ".join(map(str, infos)) or "none"
        raise CheckpointError(f"{store.uri} has no checkpoint of step {step}", hint=f"Steps: {known}.")
    return infos[wanted]


def tensors(store: Store, info: CheckpointInfo) -> dict[str, TensorSpec]:
    """The specs of its tensors by name. Raises Damaged if they cannot be read."""
    manifest = _readable(store, info)
    try:
        data = store.read(manifest.tree.key)
    except NotFound as error:
        raise Damaged(f"{manifest.tree.key} is missing") from error
    manifest.tree.verify(data)
    return tree.decode_specs(tree.parse(data))


def verify(store: Store, infos: Iterable[CheckpointInfo], progress: Progress | None = None) -> list[Damage]:
    """Read every object of these checkpoints once, and compare its hash.

    Raises:
        StorageError: the storage failed.
    """
    infos = list(infos)
    damage = [
        Damage(info.step, manifest_key(info.step), info.problem) for info in infos if info.manifest is None
    ]
    steps: dict[StoredObject, list[int]] = {}
    for info in infos:
        for stored in info.objects:
            steps.setdefault(stored, []).append(info.step)
    with WorkerPool("cloudtrain-verify") as pool:
        problems = pool.map(lambda stored: _problem(store, stored, progress), steps)
    for stored, problem in zip(steps, problems):
        damage += [Damage(step, stored.key, problem) for step in steps[stored] if problem]
    return sorted(damage, key=lambda found: (found.step, found.key))


def download(store: Store, info: CheckpointInfo, folder: Path, progress: Progress | None = None) -> None:
    """Copy one checkpoint into ``folder``, from which a `Checkpointer` can restore it. Verifies every byte.

    Raises:
        CheckpointError: it is damaged, or the folder already has this step; the folder is then unchanged.
        StorageError: the storage failed, or the folder cannot be written.
    """
    from cloudtrain.storage import FileStore

    manifest = _readable(store, info)
    if info.problem:
        raise _damaged(store, info.step, info.problem)
    target = FileStore(folder)
    if target.stat(manifest_key(info.step)) is not None:
        raise CheckpointError(f"{folder} already has step {info.step}", hint="Choose another folder.")
    data = store.read(manifest_key(info.step))
    created = not folder.exists()
    missing = [stored for stored in manifest.objects if target.stat(stored.key) is None]

    def copy(stored: StoredObject) -> None:
        store.download(stored.key, folder / stored.key, progress)

    try:
        with WorkerPool("cloudtrain-download") as pool:
            pool.map(copy, missing)
        damage = verify(target, [info])
        if damage:
            raise _damaged(store, info.step, f"{damage[0].key} {damage[0].problem}")
        target.create(manifest_key(info.step), data)
    except BaseException:
        target.delete([stored.key for stored in missing])
        if created:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def scan(store: Store) -> tuple[list[CheckpointInfo], tuple[ObjectInfo, ...]]:
    """The checkpoints, and all objects but manifests."""
    listing = Listing.of(store)
    objects = tuple(found for _, found in listing.objects())
    sizes = {found.key: found.size for found in objects}
    with WorkerPool("cloudtrain-list") as pool:
        return pool.map(lambda step: _info(store, step, sizes), listing.committed), objects


def _info(store: Store, step: int, sizes: dict[str, int]) -> CheckpointInfo:
    try:
        manifest = Manifest.from_bytes(store.read(manifest_key(step)), step)
    except NotFound:
        return CheckpointInfo(step, None, "its manifest is gone")
    except CheckpointError as error:
        return CheckpointInfo(step, None, error.message, newer=not isinstance(error, Damaged))
    missing = [stored.key for stored in manifest.objects if stored.key not in sizes]
    resized = [stored.key for stored in manifest.objects if sizes.get(stored.key, stored.size) != stored.size]
    problem = f"{missing[0]} is missing" if missing else f"{resized[0]} has the wrong size" if resized else ""
    return CheckpointInfo(step, manifest, problem)


def _readable(store: Store, info: CheckpointInfo) -> Manifest:
    if info.manifest is None:
        raise CheckpointError(f"step {info.step} in {store.uri} cannot be read: {info.problem}")
    return info.manifest


def _damaged(store: Store, step: int, problem: str) -> Damaged:
    return Damaged(
        f"step {step} in {store.uri} is damaged: {problem}",
        hint="List all damage with: cloudtrain checkpoints verify",
    )


def _problem(store: Store, stored: StoredObject, progress: Progress | None) -> str:
    """The problem with an object; empty if it is as it was saved."""
    digest = hashlib.sha256()
    size = 0
    try:
        with store.open(stored.key) as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
                size += len(block)
                if progress:
                    progress(len(block))
    except NotFound:
        return "is missing"
    except DamagedBody as error:
        return f"cannot be read: {error.message}"
    if size != stored.size:
        return f"has {size} bytes, not {stored.size}"
    return "" if digest.hexdigest() == stored.sha256 else "differs from what was saved"
