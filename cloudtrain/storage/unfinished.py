"""Unfinished multipart uploads: what a process that was killed leaves in a bucket, invisible but stored."""

from __future__ import annotations

import contextlib

from cloudtrain.errors import StorageError
from cloudtrain.storage.opening import open_store
from cloudtrain.storage.retry_policy import Patience, using
from cloudtrain.storage.uri import uri_scheme

ABANDONED_SECONDS = 7200.0
"""An upload that got no new part for this long has lost its writer: a writer gives up after an hour."""


def abort_abandoned_uploads(uri: str, idle: float = ABANDONED_SECONDS) -> int:
    """Abort the unfinished uploads below ``uri`` that got no part for ``idle`` seconds. Returns their number.

    Does nothing in a folder, and where the service or the permissions do not allow it.
    """
    aborted = 0
    if uri_scheme(uri) != "s3":
        return aborted
    from cloudtrain.storage.s3 import S3Store

    store = open_store(uri)
    assert isinstance(store, S3Store)
    with contextlib.suppress(StorageError), using(Patience(0)):
        for upload, last_part, now in store.unfinished_uploads():
            if now - last_part > idle:
                store.abort_upload(upload)
                aborted += 1
    return aborted
