"""Maps errors of the file system and of S3 to those of `cloudtrain.errors`."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloudtrain.errors import AccessDenied, NotFound, StorageError, Unreachable
from cloudtrain.storage.base import AlteredBody, DamagedBody

_CREDENTIALS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, and their permissions."
_CLOCK = "The clock of this machine is wrong, or that of the server: set it. See: timedatectl"
ENDPOINT = "Check AWS_ENDPOINT_URL_S3, the network, and that the server is running."

_CREDENTIAL_CODES = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}
_REGION_CODES = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}

_SKEWED = "RequestTimeTooSkewed"

_PLAIN_REFUSALS = {"", "401", "403", "AccessDenied", "Forbidden"}
_TRANSIENT_CODES = {
    _SKEWED,
    "BandwidthLimitExceeded",
    "IncompleteBody",
    "InternalError",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
"""Error codes, with any status, of a service that is overloaded or interrupted, and of a clock that is not set yet."""
_NOT_IMPLEMENTED = 501
_TOO_MANY_REQUESTS = 429


class GaveUp(Exception):
    """A request has failed for good, with the error that is the cause. boto3 would retry some of these errors."""


@contextlib.contextmanager
def file_errors(where: str) -> Iterator[None]:
    """Turns an OSError in the body into a StorageError about ``where``, a URI or a path."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise _from_os(error, where) from error


@contextlib.contextmanager
def s3_errors(uri: str) -> Iterator[None]:
    """Turns a boto3 error or an OSError in the body into a StorageError about ``uri``."""
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError
    from s3transfer.exceptions import RetriesExceededError

    try:
        yield
    except StorageError:
        raise
    except GaveUp as error:
        raise Unreachable(f"{uri}: {error}", hint=ENDPOINT) from error.__cause__
    except RetriesExceededError as error:
        raise Unreachable(f"{uri}: the connection broke: {error.last_exception}", hint=ENDPOINT) from error
    except ClientError as error:
        raise from_response(error.response, uri, error.operation_name) from error
    except (ConnectionError, HTTPClientError) as error:
        raise Unreachable(f"{uri}: {error}", hint=ENDPOINT) from error
    except BotoCoreError as error:
        raise _from_botocore(error, uri) from error
    except ValueError as error:
        raise StorageError(f"{uri}: {error}", hint=ENDPOINT) from error  # an invalid endpoint URL
    except OSError as error:
        raise _from_os(error, uri) from error


def _from_os(error: OSError, where: str) -> StorageError:
    name = error.filename2 or error.filename  # of a rename, the target: the source is a temporary file
    if isinstance(name, str) and where not in (name, Path(name).absolute().as_uri()):
        where = f"{where} ({name})"
    message = f"{where}: {error.strerror or error}"
    if error.errno == errno.ENOENT:
        return NotFound(f"{where} does not exist")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDenied(message, hint="Check the permissions of the file and its folder.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageError(message, hint="Free some space, or use a folder on another disk.")
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
        return StorageError(
            message, hint="Something else has this name: remove it, or choose another folder."
        )
    if isinstance(error, (ConnectionError, TimeoutError)):
        return Unreachable(message, hint=ENDPOINT)
    return StorageError(message)


def is_transient(code: str, status: int) -> bool:
    """Whether the same request may succeed later."""
    unavailable = status >= 500 and status != _NOT_IMPLEMENTED
    return unavailable or status == _TOO_MANY_REQUESTS or code in _TRANSIENT_CODES


def from_response(response: Any, uri: str, operation: str = "") -> StorageError:
    """The error for the ``response`` of a botocore ClientError; that of a HEAD request has a status but no code."""
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = response.get("Error", {}).get("Message") or code
    if code == "NoSuchBucket" or (code == "404" and operation == "HeadBucket"):
        bucket = uri.partition("://")[2].partition("/")[0]
        return NotFound(f"{uri}: there is no bucket {bucket!r}", hint="Create it, or check the endpoint.")
    if code in ("NoSuchKey", "404"):
        return NotFound(f"{uri} does not exist")
    if code in _CREDENTIAL_CODES:
        return AccessDenied(f"{uri}: {code}: {said}", hint=_CREDENTIALS)
    if code == _SKEWED:
        return Unreachable(f"{uri}: {code}: {said}", hint=_CLOCK)
    if code in _REGION_CODES or status == 301:
        return StorageError(f"{uri}: {code}: {said}", hint="Set AWS_DEFAULT_REGION to the bucket's region.")
    if code == "AccessDenied" or status in (401, 403):
        says_more = said not in (code, "", "Forbidden", "Access Denied", "Access Denied.")
        reason = f": {said}" if says_more or code not in _PLAIN_REFUSALS else ""
        return AccessDenied(f"{uri}: access denied{reason}", hint=_CREDENTIALS)
    if is_transient(code, status):
        return Unreachable(f"{uri}: the server failed ({status} {code}): {said}", hint=ENDPOINT)
    return StorageError(f"{uri}: {code}: {said}")


def broken_off(uri: str, error: Exception) -> DamagedBody:
    """The error for a body that always ends too early."""
    return DamagedBody(f"{uri}: the response breaks off: {error}", hint=ENDPOINT)


def _from_botocore(error: Exception, uri: str) -> StorageError:
    from botocore import exceptions

    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return AccessDenied(f"{uri}: no AWS credentials were found", hint=_CREDENTIALS)
    if isinstance(error, (exceptions.CredentialRetrievalError, exceptions.ProfileNotFound)):
        return AccessDenied(f"{uri}: {error}", hint=_CREDENTIALS)
    if isinstance(error, exceptions.FlexibleChecksumError):
        return AlteredBody(f"{uri}: the response is damaged: {error}", hint=ENDPOINT)
    if isinstance(error, exceptions.IncompleteReadError):
        return broken_off(uri, error)
    return StorageError(f"{uri}: {error}")
