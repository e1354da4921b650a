"""`upload_data`: copies files of this machine to S3, as the SageMaker SDK's ``Session.upload_data`` does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.aws import owner_of
from cloudtrain.errors import NotFound, PlatformError
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.storage import ObjectInfo, Progress, S3Store, join_uri, list_folder
from cloudtrain.storage.errors import file_errors
from cloudtrain.storage.transfer import move_each
from cloudtrain.storage.uri import check_key


def upload_data(
    path: str | os.PathLike[str],
    bucket: str | None = None,
    key_prefix: str = "data",
    callback: Progress | None = None,
    extra_args: Mapping[str, Any] | None = None,
    *,
    session: Any = None,
) -> str:
    """Copy a file, or all files of a folder, to S3. Returns the URI, which can be a channel of a job.

    The arguments are those of the SageMaker SDK's ``Session.upload_data``. To copy only what has changed, use
    ``cloudtrain s3 sync``.

    Args:
        path: a file or a folder.
        bucket: defaults to the SageMaker SDK's default bucket of the account, which is created if need be.
        key_prefix: the prefix of the keys. The URI of a folder is ``s3://bucket/key_prefix``, that of a file
            ``s3://bucket/key_prefix/name``.
        callback: called with the number of bytes just copied, possibly from several threads.
        extra_args: further arguments of the upload, as for boto3: ``{"ServerSideEncryption": "aws:kms"}``.
        session: a ``boto3.Session`` or a ``sagemaker.Session``; defaults to boto3's default session.

    Raises:
        NotFound: there is no such file, folder or bucket, or the folder is empty.
        StorageError: a file cannot be copied. Files copied before it remain.
        PlatformError: ``bucket`` is not given, and AWS does not report the account.
    """
    local = Path(path)
    with file_errors(str(local)):
        is_folder = local.is_dir()
        if not is_folder and not local.is_file():  # reading a pipe may block
            raise NotFound(f"there is no file or folder {local}", hint=f"Check the path, here: {os.getcwd()}")
        files = list_folder(local) if is_folder else [ObjectInfo(local.name, local.stat().st_size)]
    if not files:
        raise NotFound(f"the folder {local} has no files")
    platform = SageMakerPlatform(session)
    bucket = bucket or _default_bucket(platform)
    uri = join_uri(f"s3://{bucket}", *filter(None, [key_prefix.strip("/")]))
    for file in files:
        check_key(file.key, uri)
    store = S3Store(uri, platform.aws.session, owner=owner_of(uri), extra_args=extra_args)
    base = local if is_folder else local.parent

    def copy(file: ObjectInfo, report: Progress) -> None:
        store.upload(base / file.key, file.key, report)

    first, *others = files
    try:
        store.upload(base / first.key, first.key, callback)
    except NotFound:
        if not _is_default_bucket(platform, bucket):
            raise
        platform.make_default_bucket(uri)
        store.upload(base / first.key, first.key, callback)
    move_each(others, copy, callback)
    return uri if is_folder else join_uri(uri, local.name)


def _is_default_bucket(platform: SageMakerPlatform, bucket: str) -> bool:
    """Whether it is the default bucket. False if AWS does not report the account, such as with another S3 service."""
    try:
        return bucket == platform.aws.default_bucket
    except PlatformError:
        return False


def _default_bucket(platform: SageMakerPlatform) -> str:
    """The default bucket. Raises PlatformError, with the hint to pass a bucket."""
    try:
        return platform.aws.default_bucket
    except PlatformError as error:
        raise PlatformError(
            f"upload_data: no bucket was given, and {error.message}", hint=f"Pass bucket='...'. {error.hint}"
        ) from error
