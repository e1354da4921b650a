"""Bytes at a URI: ``file://`` and ``s3://`` behind one small protocol.

Bundled into the job, so it uses only the standard library, and boto3 where it accesses S3.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.storage.base import ObjectInfo, Progress, Store
    from cloudtrain.storage.file import FileStore
    from cloudtrain.storage.opening import open_store
    from cloudtrain.storage.s3 import S3Store
    from cloudtrain.storage.state import state_home
    from cloudtrain.storage.transfer import Select, download_tree, list_folder, list_tree, upload_tree
    from cloudtrain.storage.uri import join_uri, split_uri, uri_scheme, uri_to_path

__getattr__, __dir__ = lazy(
    __name__,
    {
        "FileStore": "cloudtrain.storage.file",
        "ObjectInfo": "cloudtrain.storage.base",
        "Progress": "cloudtrain.storage.base",
        "S3Store": "cloudtrain.storage.s3",
        "Select": "cloudtrain.storage.transfer",
        "Store": "cloudtrain.storage.base",
        "download_tree": "cloudtrain.storage.transfer",
        "join_uri": "cloudtrain.storage.uri",
        "list_folder": "cloudtrain.storage.transfer",
        "list_tree": "cloudtrain.storage.transfer",
        "open_store": "cloudtrain.storage.opening",
        "split_uri": "cloudtrain.storage.uri",
        "state_home": "cloudtrain.storage.state",
        "upload_tree": "cloudtrain.storage.transfer",
        "uri_scheme": "cloudtrain.storage.uri",
        "uri_to_path": "cloudtrain.storage.uri",
    },
)

__all__ = [
    "FileStore",
    "ObjectInfo",
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
