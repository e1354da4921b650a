"""Bytes at a URI: ``file://`` and ``s3://`` behind one small protocol.

Standard library, and boto3 only where S3 is touched: this room travels inside the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudtrain._lazy import lazy
from cloudtrain.storage.base import Entry, Progress, Store
from cloudtrain.storage.file import FileStore
from cloudtrain.storage.state import state_home
from cloudtrain.storage.transfer import Select, download_tree, list_folder, list_tree, upload_tree
from cloudtrain.storage.uri import join_uri, split_uri, uri_scheme, uri_to_path

if TYPE_CHECKING:
    from cloudtrain.storage.s3 import S3Store

__getattr__, _ = lazy(__name__, {"S3Store": "cloudtrain.storage.s3"})


def open_store(uri: str) -> Store:
    """The store below ``uri``. Touches nothing yet; raises StorageError for a URI that cannot be one."""
    if uri_scheme(uri) == "file":
        return FileStore(uri_to_path(uri))
    from cloudtrain.storage.s3 import S3Store

    return S3Store(uri)


__all__ = [
    "Entry",
    "FileStore",
    "Progress",
    "S3Store",
    "Select",
    "Store",
    "download_tree",
    "join_uri",
    "list_folder",
    "list_tree",
    "open_store",
    "split_uri",
    "state_home",
    "upload_tree",
    "uri_scheme",
    "uri_to_path",
]
