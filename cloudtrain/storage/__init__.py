"""Bytes at a URI: ``file://`` and ``s3://`` behind one small protocol.

Bundled into the job, so it uses only the standard library, and boto3 where it accesses S3.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.storage.base import ObjectInfo as ObjectInfo, Progress as Progress, Store as Store
    from cloudtrain.storage.file import FileStore as FileStore
    from cloudtrain.storage.opening import open_store as open_store
    from cloudtrain.storage.s3 import S3Store as S3Store
    from cloudtrain.storage.state import state_home as state_home
    from cloudtrain.storage.transfer import (
        Select as Select,
        download_tree as download_tree,
        list_folder as list_folder,
        list_tree as list_tree,
        upload_tree as upload_tree,
    )
    from cloudtrain.storage.uri import (
        join_uri as join_uri,
        split_uri as split_uri,
        uri_scheme as uri_scheme,
        uri_to_path as uri_to_path,
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.storage.base": "ObjectInfo Progress Store",
        "cloudtrain.storage.file": "FileStore",
        "cloudtrain.storage.opening": "open_store",
        "cloudtrain.storage.s3": "S3Store",
        "cloudtrain.storage.state": "state_home",
        "cloudtrain.storage.transfer": "Select download_tree list_folder list_tree upload_tree",
        "cloudtrain.storage.uri": "join_uri split_uri uri_scheme uri_to_path",
    },
)
