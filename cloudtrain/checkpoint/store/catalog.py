"""The contents of a store: its committed checkpoints with their manifests, and the objects to delete."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.layout import committed_step, manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import TOMBSTONE, Manifest
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.reader import read_again
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage import join_uri
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
        path = Path(store.folder, manifest_key(step))
        try:
            # a manifest that was cut off to the size of a tombstone is damaged
            is_tombstone = path.stat().st_size == len(TOMBSTONE) and path.read_bytes() == TOMBSTONE
        except (FileNotFoundError, NotADirectoryError):
            continue
        (tombstones if is_tombstone else committed).add(step)
    return Listing(store, tuple(sorted(committed)), frozenset(tombstones), frozenset(steps), None)


class Catalog:
    """The committed checkpoints of ``store``. Caches manifests. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._manifests: dict[int, Manifest] = {}

    def listing(self) -> Listing:
        return Listing.of(self.store)

    def read_manifest(self, step: int) -> Manifest:
        """Read the manifest of ``step``. Raises Damaged, or CheckpointError if a newer cloudtrain wrote it."""
        key = manifest_key(step)

        def read() -> Manifest:
            return Manifest.from_bytes(self.store.read(key), step)

        try:
            return read_again(read, join_uri(self.store.uri, key))
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


AT_ONCE = 1000
"""Maximum folders of old steps that one save checks: an earlier version may have left thousands."""


class Expiry:
    """Deletes checkpoints and objects from the store of ``catalog`` that are not needed once a step is committed."""

    def __init__(self, catalog: Catalog, policy: RetentionPolicy) -> None:
        self._catalog = catalog
        self._policy = policy
        self._clean: set[int] = set()
        """Steps whose folders have nothing to delete until one of them expires: they are not checked again."""

    def delete(self, before: Listing, step: int, damaged: set[int]) -> None:
        """Delete checkpoints and objects that are no longer needed now that ``step`` is committed.

        An object is deleted only if no manifest refers to it and none ever will: either an expired checkpoint
        referred to it, or it is in the folder of a step that no other save can commit, because the step has a
        manifest or gets a tombstone. Objects of later steps are left alone.

        Args:
            before: the store's contents before ``step`` was saved.
            damaged: the steps that are known to be damaged.
        """
        catalog, store = self._catalog, self._catalog.store
        committed = {*before.committed, step}
        expired = self._expired(committed, damaged)
        expired_keys = catalog.referenced_keys(expired)
        candidates = {other for other in before.steps if other <= step} - self._clean
        if self._policy.newest is None:  # there may be thousands, all of which are kept
            candidates -= committed
        homes = {home for home in map(step_of, expired_keys) if home is not None}
        candidates = {*sorted(candidates)[:AT_ONCE], *expired, *homes}
        found = [(other, stored.key) for other, stored in before.objects(candidates)]
        kept_keys = catalog.referenced_keys(committed - {*expired}) if found else set()
        dead = [(other, key) for other, key in found if key not in kept_keys]
        if expired or dead:
            closed = committed | before.tombstones
            for other in {other for other, key in dead if other not in closed and key not in expired_keys}:
                store.create(manifest_key(other), TOMBSTONE)
            catalog.delete_manifests(expired)
            # Another run may have committed in the meantime, so check again: see CheckpointStore._accept.
            kept_keys = catalog.referenced_keys(catalog.listing().committed)
            store.delete([key for _, key in dead if key not in kept_keys])
        in_use = set()
        if isinstance(store, FileStore):
            in_use = {other for other in candidates if not store.sweep(f"step-{other:012d}")}
        self._clean |= candidates - in_use

    def _expired(self, committed: set[int], damaged: set[int]) -> list[int]:
        metrics = self._catalog.metrics if self._policy.best else lambda step: {}
        if self._policy.newest is None:
            return []
        intact = {other: metrics(other) for other in committed - damaged}
        return self._policy.expired(intact, committed & damaged)
