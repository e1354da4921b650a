"""Uploads to the buckets of an account."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain.aws.aws import Aws, owner_of
from cloudtrain.aws.encryption import DEMANDED, may_demand_encryption, with_key
from cloudtrain.aws.errors import aws_errors, error_code
from cloudtrain.errors import AccessDenied, CloudtrainError, NotFound, PlatformError, StorageError
from cloudtrain.storage import Progress, S3Store
from cloudtrain.storage.client import connection

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_USE_KEY = (
    "Check output_kms_key: the key is enabled, in the bucket's region, and you may use it (kms:GenerateDataKey, and "
    "kms:Decrypt for more than 8 MiB)."
)
_DEMANDS = (
    "If the bucket's policy demands encryption with a KMS key, set output_kms_key to this key, with output_path and "
    "code_location in this bucket."
)


_PAUSES = (1, 2, 4, 8, 16)
"""Seconds between attempts to create a bucket while S3 is creating it for someone else."""


class Uploader:
    """Uploads files to one folder.

    Args:
        kms_key: the key with which S3 encrypts them; None for the bucket's own encryption.
    """

    def __init__(self, aws: Aws, folder: str, kms_key: str | None = None) -> None:
        self._aws = aws
        self._folder = folder
        self._kms_key = kms_key
        self._owner = owner_of(folder)

    def upload(
        self, path: Path, name: str, progress: Progress | None = None, *, if_absent: bool = True
    ) -> None:
        """Upload ``path`` as ``name``; with ``if_absent``, only if there is no such object.

        Requests encryption if S3 refuses the upload without it. Creates the account's default bucket if it is missing.
        Raises StorageError.
        """
        given = with_key(self._kms_key) if self._kms_key else {}
        try:
            self._upload(given, path, name, progress, if_absent=if_absent)
        except AccessDenied as error:
            if given or not _may_demand_encryption(error):
                raise self._denied(error) from error
            self._upload_as_demanded(error, path, name, progress, if_absent=if_absent)
        except StorageError as error:
            if not given or not _code(error).startswith("KMS."):
                raise
            raise type(error)(error.message, hint=_USE_KEY) from error

    def _upload_as_demanded(
        self, refusal: AccessDenied, path: Path, name: str, progress: Progress | None, *, if_absent: bool
    ) -> None:
        """Upload with the encryption that the bucket's policy may demand. Raises AccessDenied."""
        for arguments in DEMANDED:
            with suppress(AccessDenied):
                self._upload(arguments, path, name, progress, if_absent=if_absent)
                return
        raise self._denied(refusal) from refusal

    def _upload(
        self,
        arguments: Mapping[str, Any],
        path: Path,
        name: str,
        progress: Progress | None,
        *,
        if_absent: bool,
    ) -> None:
        store = S3Store(
            self._folder, self._aws.session, owner=self._owner, extra_args=arguments, is_conditional=True
        )
        try:
            store.upload(path, name, progress, if_absent=if_absent)
        except NotFound:
            if not make_default_bucket(self._aws, self._folder):
                raise
            store.upload(path, name, progress, if_absent=if_absent)

    def _denied(self, error: AccessDenied) -> AccessDenied:
        """The error with a hint about what the user can do."""
        hints = [_USE_KEY] if self._kms_key else [error.hint]
        if not self._kms_key and _may_demand_encryption(error):
            hints.append(_DEMANDS)
        if self._owner:
            hints.append(f"The bucket must belong to account {self._owner}.")
        return AccessDenied(error.message, hint=" ".join(hints))


def make_default_bucket(aws: Aws, uri: str) -> bool:
    """Create the default bucket if ``uri`` is in it; otherwise do nothing and return False."""
    bucket = aws.default_bucket
    if uri.split("/")[2] != bucket:
        return False
    place = {} if aws.region == "us-east-1" else {"LocationConstraint": aws.region}
    s3: Any = connection(aws.session).client  # the same client as the upload's
    arguments = {"Bucket": bucket, **({"CreateBucketConfiguration": place} if place else {})}
    with aws_errors(f"bucket {bucket} cannot be created"):
        for seconds in (*_PAUSES, None):
            try:
                s3.create_bucket(**arguments)
            except s3.exceptions.BucketAlreadyOwnedByYou:
                pass
            except s3.exceptions.ClientError as error:  # another process is creating it
                if error_code(error) != "OperationAborted" or seconds is None:
                    raise
                time.sleep(seconds)
                continue
            break
    return True


def existing_default_bucket(aws: Aws) -> str:
    """The default bucket, which is created if it does not exist.

    Raises PlatformError if AWS denies access, or the bucket belongs to another account.
    """
    bucket = aws.default_bucket
    owner = owner_of(f"s3://{bucket}")
    try:
        with aws_errors(f"bucket {bucket}"):
            aws.client("s3").head_bucket(Bucket=bucket, **({"ExpectedBucketOwner": owner} if owner else {}))
    except PlatformError as error:
        found = _client_error(error)
        status = found.response["ResponseMetadata"]["HTTPStatusCode"] if found else None
        if status == 404:
            make_default_bucket(aws, f"s3://{bucket}")
        elif owner and status == 403:
            hint = f"{error.hint} The bucket must belong to account {owner}.".lstrip()
            raise PlatformError(error.message, hint=hint) from error
        else:
            raise
    return bucket


def _may_demand_encryption(error: StorageError) -> bool:
    found = _client_error(error)
    return found is not None and may_demand_encryption(found.response, found.operation_name)


def _code(error: StorageError) -> str:
    found = _client_error(error)
    return str(found.response.get("Error", {}).get("Code", "")) if found else ""


def _client_error(error: CloudtrainError) -> ClientError | None:
    from botocore.exceptions import ClientError

    return error.__cause__ if isinstance(error.__cause__, ClientError) else None
