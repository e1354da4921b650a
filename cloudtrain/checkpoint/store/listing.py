"""The contents of a store at one moment: which steps are committed, and which objects are there."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from cloudtrain.checkpoint.format.layout import committed_step, manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import TOMBSTONE
from cloudtrain.storage.base import ObjectInfo, Store
from cloudtrain.storage.file import FileStore

_FOLDER = re.compile(r"step-(\d{12})")


@dataclass(frozen=True)
class Listing:
    """The steps of a store. In a folder, only names and manifests are looked up until `objects` is called."""

    store: Store
    committed: tuple[int, ...]
    """Steps, ascending."""
    tombstones: frozenset[int]
    """Steps that can never be committed."""
    steps: frozenset[int]
    """Steps that have anything, including an empty folder."""
    listed: tuple[ObjectInfo, ...] | None
    """Everything but manifests and tombstones; None if it has not been listed."""

    @classmethod
    def of(cls, store: Store) -> Listing:
        return _of_folder(store) if isinstance(store, FileStore) else _of_objects(store)

    def objects(self, steps: Collection[int] | None = None) -> Iterator[tuple[int, ObjectInfo]]:
        """The step in whose folder an object is, and the object; all but manifests and tombstones.

        Args:
            steps: only those in the folders of these steps.
        """
        wanted = self.steps if steps is None else self.steps.intersection(steps)
        for found in self._listed(wanted):
            step = step_of(found.key)
            if step in wanted and committed_step(found.key) is None:
                yield step, found

    def has_all(self, keys: Collection[str]) -> bool:
        """Whether all of these objects exist."""
        if self.listed is None:
            return all(self.store.stat(key) for key in keys)
        return {*keys} <= {found.key for found in self.listed}

    def _listed(self, steps: Collection[int]) -> Iterator[ObjectInfo]:
        if self.listed is not None:
            yield from self.listed
            return
        for step in sorted(steps):
            yield from self.store.list(f"step-{step:012d}/")


def _of_objects(store: Store) -> Listing:
    committed, tombstones, objects = set(), set(), []
    for found in store.list("step-"):
        step = committed_step(found.key)
        if step is None:
            objects.append(found)
        elif found.size == len(TOMBSTONE):
            tombstones.add(step)
        else:
            committed.add(step)
    in_folders = {step for step in (step_of(found.key) for found in objects) if step is not None}
    steps = frozenset(in_folders | committed | tombstones)
    return Listing(store, tuple(sorted(committed)), frozenset(tombstones), steps, tuple(objects))


def _of_folder(store: FileStore) -> Listing:
    committed: set[int] = set()
    tombstones: set[int] = set()
    steps = {int(match[1]) for match in map(_FOLDER.fullmatch, store.names()) if match}
    for step in steps:
        try:
            size = os.stat(f"{store.folder}/{manifest_key(step)}").st_size
        except (FileNotFoundError, NotADirectoryError):
            continue
        (tombstones if size == len(TOMBSTONE) else committed).add(step)
    return Listing(store, tuple(sorted(committed)), frozenset(tombstones), frozenset(steps), None)
