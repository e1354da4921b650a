"""As `sagemaker.s3` of the SDK: copies between this machine and S3."""

from __future__ import annotations

import io
import os
import re
from typing import Any

from cloudtrain.aws import owner_of
from cloudtrain.errors import StorageError
from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.session import Session
from cloudtrain.storage import Progress, S3Store, split_uri


class S3Uploader:
    """Uploads of files, folders, text and bytes. ``kms_key`` is the key to encrypt them with."""

    @staticmethod
    def upload(
        local_path: str | os.PathLike[str],
        desired_s3_uri: str,
        kms_key: str | None = None,
        sagemaker_session: Any = None,
        callback: Progress | None = None,
    ) -> str:
        """Copy a file or folder below ``desired_s3_uri``. Returns the URI: see `cloudtrain.upload_data`."""
        bucket, prefix = parse_s3_url(desired_s3_uri)
        encryption = {"SSEKMSKeyId": kms_key, "ServerSideEncryption": "aws:kms"} if kms_key else None
        return _session(sagemaker_session).upload_data(local_path, bucket, prefix, callback, encryption)

    @staticmethod
    def upload_string_as_file_body(
        body: str, desired_s3_uri: str, kms_key: str | None = None, sagemaker_session: Any = None
    ) -> str:
        """Write ``body`` to the object ``desired_s3_uri``. Returns its URI."""
        bucket, key = parse_s3_url(desired_s3_uri)
        return _session(sagemaker_session).upload_string_as_file_body(body, bucket, key, kms_key)

    @staticmethod
    def upload_bytes(
        b: bytes | io.BytesIO, s3_uri: str, kms_key: str | None = None, sagemaker_session: Any = None
    ) -> str:
        """Write bytes to the object ``s3_uri``. Returns its URI."""
        bucket, key = parse_s3_url(s3_uri)
        data = b.getvalue() if isinstance(b, io.BytesIO) else b
        return _session(sagemaker_session).upload_string_as_file_body(data, bucket, key, kms_key)


class S3Downloader:
    """Downloads and lists objects."""

    @staticmethod
    def download(
        s3_uri: str,
        local_path: str | os.PathLike[str],
        kms_key: str | None = None,
        sagemaker_session: Any = None,
    ) -> list[str]:
        """Copy an object, or all objects of a folder, into ``local_path``. Returns the files' paths.

        ``kms_key`` is not used: S3 decrypts with the object's own key.
        """
        bucket, prefix = parse_s3_url(s3_uri)
        return _session(sagemaker_session).download_data(local_path, bucket, prefix)

    @staticmethod
    def read_file(s3_uri: str, sagemaker_session: Any = None) -> str:
        """The text of an object. Raises NotFound."""
        return _session(sagemaker_session).read_s3_file(*parse_s3_url(s3_uri))

    @staticmethod
    def read_bytes(s3_uri: str, sagemaker_session: Any = None) -> bytes:
        """The bytes of an object. Raises NotFound."""
        folder, name = split_uri(s3_uri)
        store = S3Store(folder, _session(sagemaker_session).boto_session, owner=owner_of(folder))
        return store.read(name)

    @staticmethod
    def list(s3_uri: str, sagemaker_session: Any = None) -> list[str]:
        """The URIs of the objects whose key starts with that of ``s3_uri``."""
        bucket, prefix = parse_s3_url(s3_uri)
        return [f"s3://{bucket}/{key}" for key in _session(sagemaker_session).list_s3_files(bucket, prefix)]


def parse_s3_url(url: str) -> tuple[str, str]:
    """The bucket and the key of ``url``. Raises StorageError if it is not an S3 URI."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    if not url.startswith("s3://") or not bucket:
        raise StorageError(f"{url!r} is not an S3 URI", hint="Write s3://bucket/prefix.")
    return bucket, key.lstrip("/")


def s3_path_join(*args: str | None, with_end_slash: bool = False) -> str:
    """The parts joined by single slashes; ``s3://`` may be the first.

    >>> s3_path_join("s3://", "bucket/", "/a//b", None)
    's3://bucket/a/b'
    """
    joined = "/".join(part for part in args if part)
    is_uri = joined.startswith("s3:")
    path = re.sub("/+", "/", joined.removeprefix("s3:")).strip("/")
    end = "/" if with_end_slash and path else ""
    return f"{'s3://' if is_uri else ''}{path}{end}"


def _session(given: Any) -> Session:
    return given if isinstance(given, Session) else Session(getattr(given, "boto_session", given))


__getattr__ = others(__name__)

__all__ = ["S3Downloader", "S3Uploader", "parse_s3_url", "s3_path_join"]
