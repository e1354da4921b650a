"""Conditional writes, which never replace an object: which S3 services support them."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from cloudtrain.storage.atomic import TEMPORARY
from cloudtrain.storage.client import Connection

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_log = logging.getLogger("cloudtrain.storage")
_lock = threading.Lock()
_known: dict[tuple[str, str], bool] = {}


def has_conditional_writes(connection: Connection, bucket: str, folder: str) -> bool:
    """Whether the service honors ``If-None-Match: *``. Amazon S3 does; any other is tested once per process.

    Some services reject the header, others ignore it and overwrite. The test creates an empty object below
    ``folder`` twice, which must fail the second time, and removes it. Raises botocore's errors.
    """
    if connection.is_aws:
        return True
    service = (connection.client.meta.endpoint_url, bucket)
    with _lock:
        if service not in _known:
            _known[service] = _try(connection, bucket, f"{folder}{TEMPORARY}probe")
            if not _known[service]:
                _log.warning(
                    "%s does not support conditional writes (If-None-Match): an existing object is checked for "
                    "before each write instead, so two simultaneous writers may both succeed",
                    service[0],
                )
        return _known[service]


def is_conflict(error: ClientError) -> bool:
    """Whether a conditional write failed because the object exists, or is being written by another client."""
    return error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412)


def was_repeated(error: ClientError) -> bool:
    """Whether botocore retried the request: an earlier attempt may have taken effect."""
    return error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0


def _try(connection: Connection, bucket: str, key: str) -> bool:
    from botocore.exceptions import ClientError

    client = connection.client
    try:
        client.put_object(Bucket=bucket, Key=key, IfNoneMatch="*")
    except ClientError as error:
        if is_conflict(error):
            return True  # another process is testing it right now
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
