"""The committed checkpoints of a store, and their manifests."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from cloudtrain.checkpoint.errors import Damaged
from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.checkpoint.format.manifest import Manifest
from cloudtrain.checkpoint.store.listing import Listing
from cloudtrain.checkpoint.store.rereading import read_again
from cloudtrain.errors import CheckpointError, NotFound
from cloudtrain.storage import join_uri
from cloudtrain.storage.base import Store


class Catalog:
    """The committed checkpoints of ``store``. Caches manifests. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._manifests: dict[int, Manifest] = {}

    def listing(self) -> Listing:
        return Listing.of(self.store)

    def read_manifest(self, step: int) -> Manifest:
        """Read it again. Raises Damaged, or CheckpointError if a newer cloudtrain wrote it."""
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
