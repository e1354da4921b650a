"""The contents of a store: committed checkpoints, their manifests, and all objects."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.layout import committed_step, manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import TOMBSTONE, Manifest
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage.base import ObjectInfo, Store


@dataclass(frozen=True)
class Listing:
    """The result of listing a store once."""

    committed: tuple[int, ...]
    """Steps, ascending."""
    tombstones: frozenset[int]
    """Steps that can never be committed."""
    objects: tuple[ObjectInfo, ...]
    """Everything but manifests and tombstones."""

    @classmethod
    def of(cls, store: Store) -> Listing:
        committed, tombstones, objects = [], set(), []
        for found in store.list("step-"):
            step = committed_step(found.key)
            if step is None:
                objects.append(found)
            elif found.size == len(TOMBSTONE):
                tombstones.add(step)
            else:
                committed.append(step)
        return cls(tuple(sorted(committed)), frozenset(tombstones), tuple(objects))

    @property
    def keys(self) -> set[str]:
        """Of `objects`."""
        return {found.key for found in self.objects}

    def keys_by_step(self) -> Iterator[tuple[int, str]]:
        """The step in whose folder each object is, and its key."""
        for found in self.objects:
            step = step_of(found.key)
            if step is not None:
                yield step, found.key


class Catalog:
    """The committed checkpoints of ``store``. Caches manifests. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._manifests: dict[int, Manifest] = {}

    def listing(self) -> Listing:
        return Listing.of(self.store)

    def read_manifest(self, step: int) -> Manifest:
        """Read it again. Raises Damaged, or CheckpointError if a newer cloudtrain wrote it."""
        try:
            return Manifest.from_bytes(self.store.read(manifest_key(step)), step)
        except NotFound as error:
            raise Damaged("its manifest is gone") from error

    def manifest(self, step: int) -> Manifest:
        """Like `read_manifest`, from the cache if possible."""
        if step not in self._manifests:
            self._manifests[step] = self.read_manifest(step)
        return self._manifests[step]

    def metrics(self, step: int) -> Mapping[str, float]:
        """The metrics of ``step``; empty if its manifest is not readable."""
        try:
            return self.manifest(step).decode_metrics()
        except CheckpointError:
            return {}

    def contains(self, manifest: Manifest) -> bool:
        """Whether ``manifest`` is the committed one of its step now."""
        try:
            return self.read_manifest(manifest.step).save == manifest.save
        except CheckpointError:
            return False

    def add(self, manifest: Manifest) -> None:
        """Cache a manifest that was just read or written."""
        self._manifests[manifest.step] = manifest

    def delete_manifests(self, steps: Collection[int]) -> None:
        self.store.delete(map(manifest_key, steps))
        for step in steps:
            self._manifests.pop(step, None)

    def referenced_keys(self, steps: Collection[int]) -> set[str]:
        """The keys of all objects of these checkpoints. Raises CheckpointError if a newer cloudtrain wrote one."""
        keys = set()
        for step in steps:
            with contextlib.suppress(Damaged):  # nothing can restore it
                keys |= {stored.key for stored in self.manifest(step).objects}
        return keys
