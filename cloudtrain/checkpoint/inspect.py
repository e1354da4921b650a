"""Lists, verifies, downloads and deletes the checkpoints of a store, on request.

Needs none of the frameworks whose tensors the checkpoints hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format import tree
from cloudtrain.checkpoint.format.layout import manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import TOMBSTONE, Manifest, StoredObject
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.catalog import Listing
from cloudtrain.checkpoint.tensors.framework import TensorSpec
from cloudtrain.checkpoint.workers import WorkerPool
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage import FileStore
from cloudtrain.storage.atomic import is_temporary
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
    """Whether it was written by a newer cloudtrain, without which it cannot be read."""

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
    return stored.problem(size, digest.hexdigest())


ABANDONED_SECONDS = 86400.0
"""No save takes this long for one object: its writer must have been killed."""


@dataclass(frozen=True)
class FolderOrphans:
    """Leftovers of interrupted saves in a folder, untouched for a day. The folder's store does not list them."""

    files: tuple[ObjectInfo, ...] = ()
    """Temporary files."""
    folders: tuple[str, ...] = ()
    """Empty folders, relative to the checkpoints' folder."""


@dataclass(frozen=True)
class PrunePlan:
    """The checkpoints and objects that `prune` will delete."""

    steps: tuple[int, ...]
    """Checkpoints, ascending."""
    orphans: tuple[ObjectInfo, ...]
    """Objects of interrupted saves, to which no checkpoint refers."""
    folder_orphans: FolderOrphans
    freed: int
    """Total bytes."""

    @property
    def is_empty(self) -> bool:
        return not (self.steps or self.orphans or self.folder_orphans.files or self.folder_orphans.folders)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "steps": list(self.steps),
            "leftovers": [orphan.key for orphan in self.orphans],
            "unfinished": [orphan.key for orphan in self.folder_orphans.files],
            "empty_folders": len(self.folder_orphans.folders),
            "freed": self.freed,
        }


def plan_pruning(store: Store, *, keep: int | None = None, leftovers: bool = False) -> PrunePlan:
    """The checkpoints and objects that can be deleted.

    Args:
        keep: how many of the newest checkpoints to keep, not counting damaged ones; None keeps all.
        leftovers: include the orphans below the newest checkpoint (a save of a later step may be running), and in a
            folder also the `FolderOrphans`.

    Raises:
        CheckpointError: a newer cloudtrain wrote one of the checkpoints, so the objects that it needs are unknown.
    """
    infos, objects = scan(store)
    newer = [info for info in infos if info.newer]
    if newer:
        raise CheckpointError(f"{store.uri} cannot be pruned here: {newer[0].problem}")
    intact = {info.step: info.metrics for info in infos if not info.problem}
    damaged = {info.step for info in infos if info.problem}
    expired = RetentionPolicy(keep, None).expired(intact, damaged)
    before, after = _referenced(infos), _referenced(info for info in infos if info.step not in expired)
    newest = max(intact, default=-1)
    orphans = [
        found
        for found in objects
        if leftovers and found.key not in before and (step_of(found.key) or 0) <= newest
    ]
    released = [found for found in objects if found.key in before - after]
    in_folder = FolderOrphans()
    if leftovers and isinstance(store, FileStore):
        in_folder = find_folder_orphans(store.folder)
    freed = sum(found.size for found in (*released, *orphans, *in_folder.files))
    return PrunePlan(tuple(expired), tuple(orphans), in_folder, freed)


def prune(store: Store, plan: PrunePlan) -> None:
    """Carry out the plan: delete manifests first, then the objects to which no manifest refers.

    A step that has orphans gets a tombstone, so that a save of it can no longer commit without its data.

    Raises:
        StorageError: the storage failed; prune again to delete the rest.
    """
    infos, _ = scan(store)
    expired = [info for info in infos if info.step in plan.steps]
    committed = {info.step for info in infos}
    for step in {step_of(orphan.key) for orphan in plan.orphans} - committed - {None}:
        store.create(manifest_key(step or 0), TOMBSTONE)
    store.delete(manifest_key(info.step) for info in expired)
    referenced = _referenced(list_checkpoints(store))  # again, as a run may have committed in the meantime
    keys = _referenced(expired) | {orphan.key for orphan in (*plan.orphans, *plan.folder_orphans.files)}
    deleted = sorted(keys - referenced)
    store.delete(deleted)
    if isinstance(store, FileStore):
        remove_empty_folders(store.folder, plan.folder_orphans.folders)


def find_folder_orphans(folder: Path) -> FolderOrphans:
    """The orphans in the folders of all steps."""
    files: list[ObjectInfo] = []
    empty: list[str] = []
    for path, inner, names in os.walk(folder, topdown=False):
        base = os.path.relpath(path, folder)
        if step_of(f"{base}/") is None:
            continue
        with contextlib.suppress(FileNotFoundError):  # its writer is alive, or another process is pruning
            if (
                not names
                and all(f"{base}/{name}" in empty for name in inner)
                and _age(path) > ABANDONED_SECONDS
            ):
                empty.append(base)
        for name in filter(is_temporary, names):
            with contextlib.suppress(FileNotFoundError):
                if _age(f"{path}/{name}") > ABANDONED_SECONDS:
                    files.append(ObjectInfo(f"{base}/{name}", os.lstat(f"{path}/{name}").st_size))
    return FolderOrphans(tuple(sorted(files, key=lambda found: found.key)), tuple(empty))


def remove_empty_folders(folder: Path, names: Iterable[str]) -> None:
    """Remove those of the named folders that are empty, and then their empty parents, below ``folder``."""
    for name in names:
        with contextlib.suppress(OSError):
            for path in (folder / name, *(folder / name).parents):
                if path == folder:
                    break
                path.rmdir()


def _referenced(infos: Iterable[CheckpointInfo]) -> set[str]:
    """The keys of all objects of these checkpoints."""
    return {stored.key for info in infos for stored in info.objects}


def _age(path: str) -> float:
    """Seconds since the last write."""
    return time.time() - os.lstat(path).st_mtime
