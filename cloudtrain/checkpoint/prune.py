"""Deletes checkpoints, and what interrupted saves have left, when somebody asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cloudtrain.checkpoint._keep import Keep
from cloudtrain.checkpoint._manifest import GIVEN_UP
from cloudtrain.checkpoint._remains import Remains, find_remains, remove_empty
from cloudtrain.checkpoint.inspect import CheckpointInfo, list_checkpoints, look
from cloudtrain.checkpoint.layout import manifest_key, step_of
from cloudtrain.errors import CheckpointError
from cloudtrain.storage import FileStore
from cloudtrain.storage.base import Entry, Store


@dataclass(frozen=True)
class Pruning:
    """What `prune` would delete."""

    steps: tuple[int, ...]
    """Checkpoints, ascending."""
    leftovers: tuple[Entry, ...]
    """Objects that no checkpoint names, left by saves that were interrupted."""
    remains: Remains
    """Of a folder: what no store lists, and nobody has touched for a day."""
    freed: int
    """Bytes of all that goes."""

    @property
    def is_empty(self) -> bool:
        return not (self.steps or self.leftovers or self.remains.files or self.remains.folders)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "steps": list(self.steps),
            "leftovers": [entry.key for entry in self.leftovers],
            "unfinished": [entry.key for entry in self.remains.files],
            "empty_folders": len(self.remains.folders),
            "freed": self.freed,
        }


def plan_pruning(store: Store, *, keep: int | None = None, leftovers: bool = False) -> Pruning:
    """What can go.

    Args:
        keep: how many of the newest checkpoints stay, damaged ones not counted; None: all.
        leftovers: also what interrupted saves have left below the newest checkpoint. A save may be under way
            above it. Of a folder also the `Remains`.

    Raises:
        CheckpointError: a newer cloudtrain has written here: what its checkpoints name is not known.
    """
    infos, objects = look(store)
    newer = [info for info in infos if info.newer]
    if newer:
        raise CheckpointError(f"{store.uri} cannot be pruned here: {newer[0].problem}")
    whole = {info.step: info.metrics for info in infos if not info.problem}
    damaged = {info.step for info in infos if info.problem}
    doomed = Keep(keep, None).doomed(whole, damaged)
    before, after = _named(infos), _named(info for info in infos if info.step not in doomed)
    newest = max(whole, default=-1)
    left = [
        entry
        for entry in objects
        if leftovers and entry.key not in before and (step_of(entry.key) or 0) <= newest
    ]
    gone = [entry for entry in objects if entry.key in before - after]
    remains = find_remains(store.folder) if leftovers and isinstance(store, FileStore) else Remains()
    freed = sum(entry.size for entry in (*gone, *left, *remains.files))
    return Pruning(tuple(doomed), tuple(left), remains, freed)


def prune(store: Store, pruning: Pruning) -> None:
    """Carry it out: manifests first, then the objects that no manifest names.

    A save of a step that has leftovers can never be committed afterwards, so that none loses its data.

    Raises:
        StorageError: the storage failed; what is left can be pruned again.
    """
    infos, _ = look(store)
    doomed = [info for info in infos if info.step in pruning.steps]
    committed = {info.step for info in infos}
    for step in {step_of(entry.key) for entry in pruning.leftovers} - committed - {None}:
        store.create(manifest_key(step or 0), GIVEN_UP)
    store.delete(manifest_key(info.step) for info in doomed)
    named = _named(list_checkpoints(store))  # again, for what a run has committed meanwhile
    keys = _named(doomed) | {entry.key for entry in (*pruning.leftovers, *pruning.remains.files)}
    gone = sorted(keys - named)
    store.delete(gone)
    if isinstance(store, FileStore):
        remove_empty(store.folder, [*pruning.remains.folders, *(os.path.dirname(key) for key in gone)])


def _named(infos: Iterable[CheckpointInfo]) -> set[str]:
    """The keys of all objects that these checkpoints consist of."""
    return {entry.key for info in infos for entry in info.objects}
