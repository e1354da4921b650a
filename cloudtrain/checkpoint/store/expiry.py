"""Deletes checkpoints that the retention policy does not keep, and the orphans of interrupted saves."""

from __future__ import annotations

from cloudtrain.checkpoint.format.layout import manifest_key, step_of
from cloudtrain.checkpoint.format.manifest import TOMBSTONE
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.catalog import Catalog
from cloudtrain.checkpoint.store.listing import Listing
from cloudtrain.storage.file import FileStore

AT_ONCE = 1000
"""Folders of old steps that one save looks into: thousands may be left by an earlier version."""


class Expiry:
    """Deletes from the store of ``catalog`` what is no longer needed once a step is committed."""

    def __init__(self, catalog: Catalog, policy: RetentionPolicy) -> None:
        self._catalog = catalog
        self._policy = policy
        self._clean: set[int] = set()
        """Steps whose folders have nothing to delete until one of them expires: they are not looked into again."""

    def delete(self, before: Listing, step: int, damaged: set[int]) -> None:
        """Delete what is no longer needed now that ``step`` is committed.

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
            # Check again for what another run has committed in the meantime: see CheckpointStore._accept.
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
