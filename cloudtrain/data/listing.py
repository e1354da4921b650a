"""Lists buckets and objects for ``cloudtrain s3 ls``."""

from __future__ import annotations

from collections.abc import Iterable

from cloudtrain.data.location import Location, printable
from cloudtrain.errors import NotFound, StorageError
from cloudtrain.storage import ObjectInfo, S3Store
from cloudtrain.storage.client import connection
from cloudtrain.storage.errors import s3_errors


def list_buckets() -> list[ObjectInfo]:
    """All buckets of the account, with the time of their creation. Raises StorageError."""
    with s3_errors("the list of buckets"):
        found = connection().client.list_buckets().get("Buckets", [])
    return [ObjectInfo(bucket["Name"], 0, bucket["CreationDate"].timestamp()) for bucket in found]


def list_objects(uri: str, *, recursive: bool) -> tuple[str, Iterable[ObjectInfo]]:
    """The URI of a folder, and what is in it; or a single object.

    Raises:
        NotFound: there is nothing at ``uri``.
        StorageError: ``uri`` is not in S3.
    """
    location = Location.parse(uri)
    tree = location.tree
    if not isinstance(tree.store, S3Store):
        raise StorageError(
            f"{printable(uri)} is on this machine", hint="Use ls. S3 is at s3://bucket/prefix."
        )
    listed = tree.store.list() if recursive else tree.store.list_folder()
    entries = [entry for entry in listed if entry.key]
    if not entries and not location.is_bucket:
        found = location.find_file()
        if found is None:
            raise NotFound(f"there is nothing at {printable(uri)}")
        return found[0].store.uri, [found[1]]
    return tree.store.uri, entries
