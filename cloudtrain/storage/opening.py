"""Opens the store of a URI, and removes the leftovers of killed writers from it."""

from __future__ import annotations

import contextlib

from cloudtrain.errors import StorageError
from cloudtrain.storage.base import Store
from cloudtrain.storage.retry_policy import Patience, using
from cloudtrain.storage.uri import uri_scheme, uri_to_path


def open_store(uri: str) -> Store:
    """The store below ``uri``, without accessing it yet. Raises StorageError for an invalid URI."""
    scheme = uri_scheme(uri)
    if scheme == "file":
        from cloudtrain.storage.file import FileStore

        return FileStore(uri_to_path(uri))
    if scheme == "gs":
        from cloudtrain.storage.gcs import GCSStore

        return GCSStore(uri)
    from cloudtrain.storage.s3 import S3Store

    return S3Store(uri)


ABANDONED_SECONDS = 7200.0
"""An upload that got no new part for this long has lost its writer: a writer gives up after an hour."""


def abort_abandoned_uploads(uri: str, idle: float = ABANDONED_SECONDS) -> int:
    """Abort the unfinished uploads below ``uri`` that got no part for ``idle`` seconds. Returns their number.

    Does nothing in a folder, and where the service or the permissions do not allow it.
    """
    if uri_scheme(uri) != "s3":
        return 0
    from cloudtrain.storage.s3 import S3Store

    store, aborted = S3Store(uri), 0
    with contextlib.suppress(StorageError), using(Patience(0)):
        for upload, last_part, now in store.unfinished_uploads():
            if now - last_part > idle:
                store.abort_upload(upload)
                aborted += 1
    return aborted
