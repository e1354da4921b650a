"""Deletes checkpoints that the retention policy does not keep, and the orphans of interrupted saves."""

from __future__ import annotations

from cloudtrain.checkpoint.format.layout import manifest_key
from cloudtrain.checkpoint.format.manifest import TOMBSTONE
from cloudtrain.checkpoint.retention import RetentionPolicy
from cloudtrain.checkpoint.store.catalog import Catalog, Listing


def delete_expired(
    catalog: Catalog, policy: RetentionPolicy, before: Listing, step: int, damaged: set[int]
) -> None:
    """Delete what is no longer needed now that ``step`` is committed.

    An object is deleted only if no manifest refers to it and none ever will: either an expired checkpoint
    referred to it, or it is in the folder of a step that no other save can commit, because the step has a
    manifest or gets a tombstone. Objects of later steps are left alone.

    Args:
        before: the store's contents before ``step`` was saved.
        damaged: the steps that are known to be damaged.
    """
    if policy.newest is None:
        return
    store = catalog.store
    committed = {*before.committed, step}
    intact = {other: catalog.metrics(other) for other in committed - damaged}
    expired = policy.expired(intact, committed & damaged)
    kept_keys = catalog.referenced_keys(committed - set(expired))
    dead = [(other, key) for other, key in before.keys_by_step() if other <= step and key not in kept_keys]
    if not expired and not dead:
        return
    expired_keys = catalog.referenced_keys(expired)
    closed = committed | before.tombstones
    for other in {other for other, key in dead if other not in closed and key not in expired_keys}:
        store.create(manifest_key(other), TOMBSTONE)
    catalog.delete_manifests(expired)
    # Check again for what another run has committed in the meantime: see CheckpointStore._accept.
    kept_keys = catalog.referenced_keys(catalog.listing().committed)
    store.delete([key for _, key in dead if key not in kept_keys])
