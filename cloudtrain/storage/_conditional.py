"""Writes that do not replace what is there: which S3 services have them."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from cloudtrain.storage._client import Connection
from cloudtrain.storage.atomic import TEMPORARY

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_log = logging.getLogger("cloudtrain.storage")
_lock = threading.Lock()
_known: dict[tuple[str, str], bool] = {}


def has_conditional_writes(connection: Connection, bucket: str, folder: str) -> bool:
    """Whether the service obeys ``If-None-Match: *``. Amazon's does; another is tried once per process.

    Some services refuse the header, and some ignore it and overwrite: so an empty object below ``folder`` is
    created twice, which must fail the second time, and is removed. Raises botocore's errors.
    """
    if connection.is_aws:
        return True
    service = (connection.client.meta.endpoint_url, bucket)
    with _lock:
        if service not in _known:
            _known[service] = _try(connection, bucket, f"{folder}{TEMPORARY}probe")
            if not _known[service]:
                _log.warning(
                    "%s has no conditional writes (If-None-Match): each is replaced by a look and a write, "
                    "so of two writers at the same moment both may win",
                    service[0],
                )
        return _known[service]


def is_conflict(error: ClientError) -> bool:
    """Whether a conditional write failed because the object is there, or is being written by another."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412)


def was_repeated(error: ClientError) -> bool:
    """Whether botocore sent the request more than once: an earlier attempt may have had its effect."""
    return error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0


def _try(connection: Connection, bucket: str, key: str) -> bool:
    from botocore.exceptions import ClientError

    client = connection.client
    try:
        client.put_object(Bucket=bucket, Key=key, IfNoneMatch="*")
    except ClientError as error:
        if is_conflict(error):
            return True  # another process tries it at this moment
        if error.response["Error"].get("Code") in ("NotImplemented", "InvalidArgument", "InvalidRequest"):
            return False
        raise
    try:
        client.put_object(Bucket=bucket, Key=key, IfNoneMatch="*")
    except ClientError as error:
        if is_conflict(error):
            return True
        raise
    finally:
        with contextlib.suppress(ClientError):
            client.delete_object(Bucket=bucket, Key=key)
    return False
