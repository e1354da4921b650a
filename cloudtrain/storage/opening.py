"""Opens the store of a URI."""

from __future__ import annotations

from cloudtrain.storage.base import Store
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
