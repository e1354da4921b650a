"""Deletes checkpoints and orphans on request."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtrain.checkpoint.format.layout import manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import TOMBSTONE
from cloudtrain.checkpoint.inspect import CheckpointInfo, list_checkpoints, scan
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.errors import CheckpointError
from cloudtrain.storage import FileStore
from cloudtrain.storage.atomic import is_temporary
from cloudtrain.storage.base import ObjectInfo, Store

ABANDONED_SECONDS = 86400.0
"""No save takes this long for one object: its writer must have been killed."""


@dataclass(frozen=True)
class FolderOrphans:
    """Leftovers of interrupted saves in a folder that its store does not list, untouched for a day."""

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
        leftovers: include the orphans below the newest checkpoint (a later step may be being saved now), and in a
            folder also the `FolderOrphans`.

    Raises:
        CheckpointError: a newer cloudtrain wrote some checkpoint, so it is not known which objects it needs.
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
        with contextlib.suppress(FileNotFoundError):  # its writer is alive, or someone else is pruning
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
