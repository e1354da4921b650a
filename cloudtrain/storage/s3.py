"""A store of the objects below a prefix in an S3 bucket."""

from __future__ import annotations

import base64
import contextlib
import io
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cloudtrain._system.files import replace
from cloudtrain.errors import StorageError, Unreachable
from cloudtrain.storage._conditional import has_conditional_writes, is_conflict, was_repeated
from cloudtrain.storage._streams import Body, ObjectStream
from cloudtrain.storage.atomic import is_temporary, temporary_sibling
from cloudtrain.storage.base import Data, ObjectInfo, Progress, opened
from cloudtrain.storage.client import PART, Connection, connection, provide_boto3
from cloudtrain.storage.errors import GaveUp, broken_off, from_response, s3_errors
from cloudtrain.storage.retry_policy import ATTEMPTS, ATTEMPTS_OF_BODIES, Patience, current, default, using
from cloudtrain.storage.uri import check_key, join_uri, split_bucket_uri

if TYPE_CHECKING:
    from boto3 import Session
    from s3transfer.futures import TransferFuture

DELETE_BATCH = 1000
"""Maximum number of keys in one DeleteObjects request (Amazon S3 API Reference)."""
BUFFER = 1 << 18
"""Bytes read ahead for small reads; larger reads bypass the buffer."""
SMALL = 1 << 18
"""Maximum bytes of an object that is sent without first checking whether it exists, which would take as long."""
WHOLE = 64 << 20
"""Maximum bytes of an object that is first sent in one request instead of in parts, each of which is a request."""
_TOO_LARGE = 413
_EXISTS = 412


class _Larger(Exception):
    """The object is too large to be read with one request."""


class S3Store:
    """A `Store` on any service with Amazon S3's API.

    Uses the standard AWS settings, such as ``AWS_ENDPOINT_URL_S3`` and ``AWS_PROFILE``, or those of ``session``.
    `retry_policy` decides how long requests are retried.

    Args:
        owner: the account that must own the bucket; the service rejects requests otherwise.
        extra_args: further arguments of `upload`, in boto3's form.
        is_conditional: the service is known to honor ``If-None-Match: *``, as Amazon S3 does.
    """

    def __init__(
        self,
        uri: str,
        session: Session | None = None,
        *,
        owner: str | None = None,
        extra_args: Mapping[str, Any] | None = None,
        is_conditional: bool = False,
    ) -> None:
        provide_boto3()
        self._session = session
        self.bucket, prefix = split_bucket_uri(uri)
        self._owner: dict[str, Any] = {"ExpectedBucketOwner": owner} if owner else {}
        self._extra_args = dict(extra_args or {})
        self._is_conditional = is_conditional
        self.folder = prefix and prefix + "/"
        self.uri = f"s3://{self.bucket}/{prefix}".rstrip("/")

    def read(self, key: str) -> bytes:
        with s3_errors(self._uri(key)):
            return self._read(key)

    def open(self, key: str) -> BinaryIO:
        with s3_errors(self._uri(key)):
            return io.BufferedReader(
                ObjectStream(self._connection.client, self._uri(key), **self._object(key)), BUFFER
            )

    def write(self, key: str, data: Data, *, sha256: bytes | None = None) -> None:
        body: Any = data if isinstance(data, bytes) else Body(data)
        with s3_errors(self._uri(key)):
            if sha256 is None:
                self._connection.client.put_object(**self._object(key), Body=body)
            else:
                checksum = base64.b64encode(sha256).decode()
                self._connection.writer.put_object(**self._object(key), Body=body, ChecksumSHA256=checksum)

    def create(self, key: str, data: bytes) -> bool:
        from botocore.exceptions import ClientError

        with s3_errors(self._uri(key)):
            if not self._has_conditional_writes():
                if self.stat(key):
                    return False
                self.write(key, data)
                return True
            try:
                self._connection.client.put_object(**self._object(key), Body=data, IfNoneMatch="*")
            except ClientError as error:
                if not is_conflict(error):
                    raise
                # The response to the first attempt may have been lost: it may have created this object.
                return was_repeated(error) and self.read(key) == data
            return True

    def stat(self, key: str) -> ObjectInfo | None:
        with s3_errors(self._uri(key)):
            found = self._head(key)
            if found is None:
                self._check_bucket()
            return found

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with s3_errors(f"{self.uri}/{prefix}" if prefix else self.uri):
            entries = self._list(prefix)
            # Amazon S3 lists in key order; SeaweedFS lists a/b before a-b.
            yield from entries if self._connection.is_aws else sorted(entries, key=lambda entry: entry.key)

    def delete(self, keys: Iterable[str]) -> None:
        # Keys are not checked: whatever `list` returns can be deleted, even ``a//b``, which is not a valid file name.
        names = (self.folder + key for key in keys)
        while batch := list(islice(names, DELETE_BATCH)):
            outage = current().outage(self.uri)
            while failure := self._delete(batch):
                if not isinstance(failure, Unreachable) or not outage.wait(failure.message):
                    raise failure

    def download(self, key: str, path: Path, progress: Progress | None = None) -> None:
        with s3_errors(self._uri(key)), temporary_sibling(path) as temporary:
            try:
                data = self._read(key, largest=PART)
            except _Larger:
                self._download_parts(key, temporary, progress)
            else:
                temporary.write_bytes(data)
                if progress:
                    progress(len(data))
            replace(temporary, path)

    def upload(
        self, source: Path | BinaryIO, key: str, progress: Progress | None = None, *, if_absent: bool = False
    ) -> bool:
        with s3_errors(self._uri(key)):
            if if_absent:
                created = self._upload_small(source, key, progress)
                if created is None:
                    created = not self._has_upload(key)
                    if created and not self._upload_whole(source, key, progress):
                        self._upload(source, key, progress)
                return created
            self._upload(source, key, progress)
            return True

    def list_folder(self) -> Iterator[ObjectInfo]:
        """The objects directly below the store's URI, and its folders: their keys end with a slash, their size is 0.

        One request per 1,000 names, however much the folders contain.
        """
        with s3_errors(self.uri):
            pages = self._connection.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.folder, Delimiter="/", **self._owner):
                folders = [
                    ObjectInfo(found["Prefix"][len(self.folder) :], 0)
                    for found in page.get("CommonPrefixes", [])
                ]
                yield from sorted([*folders, *self._objects(page)], key=lambda entry: entry.key)

    def unfinished_uploads(self) -> Iterator[tuple[Mapping[str, Any], float, float]]:
        """The multipart uploads below the store's URI that are neither complete nor aborted.

        Yields the argument of `abort_upload`, the time of the last part, and the present time. Both times are in
        seconds since the epoch, by the clock of the service.
        """
        with s3_errors(self.uri):
            client = self._connection.client
            pages = client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.folder, **self._owner):
                for found in page.get("Uploads", []):
                    upload: dict[str, Any] = {"Key": found["Key"], "UploadId": found["UploadId"]}
                    with contextlib.suppress(
                        client.exceptions.NoSuchUpload
                    ):  # it was completed in the meantime
                        times = [found["Initiated"].timestamp()]
                        parts = client.get_paginator("list_parts")
                        for answer in parts.paginate(Bucket=self.bucket, **upload, **self._owner):
                            times += [part["LastModified"].timestamp() for part in answer.get("Parts", [])]
                        yield upload, max(times), _service_time(answer)

    def abort_upload(self, upload: Mapping[str, Any]) -> None:
        """Abort one of `unfinished_uploads`, and delete its parts."""
        with s3_errors(self.uri):
            client = self._connection.client
            with contextlib.suppress(client.exceptions.NoSuchUpload):
                client.abort_multipart_upload(Bucket=self.bucket, **upload, **self._owner)

    def copy_from(self, source: S3Store, source_key: str, key: str, progress: Progress | None = None) -> None:
        """Copy an object of ``source`` to ``key``, inside the service. Both stores must be on the same service."""
        with s3_errors(f"{source._uri(source_key)} to {self._uri(key)}"):
            self._connection.client.copy(
                {"Bucket": source.bucket, "Key": source.folder + source_key},
                self.bucket,
                self._object(key)["Key"],
                ExtraArgs=dict(self._owner),
                Callback=progress,
            )

    def _delete(self, names: Sequence[str]) -> StorageError | None:
        """Delete one batch. Returns the first error among those of single objects."""
        with s3_errors(self.uri):
            answer = self._connection.client.delete_objects(
                Bucket=self.bucket,
                Delete={"Objects": [{"Key": name} for name in names], "Quiet": True},
                **self._owner,
            )
        for error in answer.get("Errors", []):
            return from_response({"Error": error}, f"s3://{self.bucket}/{error.get('Key', '')}")
        return None

    def _head(self, key: str) -> ObjectInfo | None:
        """None if the object or its bucket does not exist."""
        found = self._head_object(key)
        return found and ObjectInfo(key, found["ContentLength"], found["LastModified"].timestamp())

    def _head_object(self, key: str) -> Any:
        """The service's response; None if the object or its bucket does not exist."""
        from botocore.exceptions import ClientError

        try:
            return self._connection.client.head_object(**self._object(key))
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            return None

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        pages = self._connection.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.bucket, Prefix=self.folder + prefix, **self._owner):
            yield from self._objects(page)

    def _objects(self, page: Any) -> Iterator[ObjectInfo]:
        """The objects in one page of a listing."""
        for found in page.get("Contents", []):
            key = found["Key"][len(self.folder) :]
            if key and not is_temporary(key.rpartition("/")[2]):
                yield ObjectInfo(key, found["Size"], found["LastModified"].timestamp())

    def _read(self, key: str, largest: float = math.inf) -> bytes:
        """The whole object. Raises _Larger without reading it if it has more than ``largest`` bytes."""
        from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError

        outage, altered = current().outage(self._uri(key)), 0
        while True:
            found = self._connection.client.get_object(**self._object(key))
            with contextlib.closing(found["Body"]) as body:
                if found["ContentLength"] > largest:
                    raise _Larger
                try:
                    return body.read()
                except FlexibleChecksumError as error:
                    altered += 1
                    if altered == ATTEMPTS or not outage.wait(str(error)):
                        raise
                except (HTTPClientError, IncompleteReadError) as error:
                    if not outage.wait(str(error), attempts=ATTEMPTS_OF_BODIES):
                        raise broken_off(self._uri(key), error) from error

    def _download_parts(self, key: str, path: Path, progress: Progress | None) -> None:
        from s3transfer.exceptions import RetriesExceededError

        expected = self.stat(key)
        outage = current().outage(self._uri(key))
        while True:
            counted = _Counted(progress)
            try:
                _finish(
                    self._connection.transfers.download(
                        self.bucket, self.folder + key, str(path), dict(self._owner), _subscribers(counted)
                    )
                )
                break
            except (
                RetriesExceededError
            ) as error:  # the bodies of parts broke off; requests have their own retries
                if not outage.wait(str(error.last_exception), attempts=ATTEMPTS_OF_BODIES):
                    raise
                counted.take_back()
        if expected is None or path.stat().st_size != expected.size:
            raise Unreachable(f"{self._uri(key)} changed while it was being read", hint="Try again.")

    def _upload(self, source: Path | BinaryIO, key: str, progress: Progress | None) -> None:
        with opened(source) as file:
            if os.fstat(file.fileno()).st_size > PART:
                _finish(
                    self._connection.transfers.upload(
                        str(source)
                        if isinstance(source, Path)
                        else file,  # parts of a path are read in parallel
                        self.bucket,
                        self.folder + key,
                        {**self._extra_args, **self._owner},
                        _subscribers(progress),
                    )
                )
                return
            self._connection.client.put_object(**self._object(key), **self._extra_args, Body=file)
            if progress:
                progress(file.tell())

    def _upload_small(self, source: Path | BinaryIO, key: str, progress: Progress | None) -> bool | None:
        """Upload a small file with one conditional request. Returns whether it was absent.

        Returns None, and changes nothing, if the file is large, the service may not support such requests, or the
        object exists and its KMS key matters.
        """
        from botocore.exceptions import ClientError

        if not (self._is_conditional or self._connection.is_aws):
            return None
        with opened(source) as file:
            if os.fstat(file.fileno()).st_size > SMALL:
                return None
            data = file.read()
            file.seek(0)
        try:
            self._connection.client.put_object(
                **self._object(key), **self._extra_args, Body=data, IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == _EXISTS:
                return None if "SSEKMSKeyId" in self._extra_args else False
            if not is_conflict(error):
                raise
            return None  # another client writes it right now, and may fail
        if progress:
            progress(len(data))
        return True

    def _upload_whole(self, source: Path | BinaryIO, key: str, progress: Progress | None) -> bool:
        """Upload a file in one request. Returns False if its size is unsuitable, or if the request breaks."""
        from botocore.exceptions import ClientError

        with opened(source) as file:
            if not PART < os.fstat(file.fileno()).st_size <= WHOLE:
                return False
            counted = _Counted(progress)
            body: Any = _Body(file, counted)
            try:
                with using(Patience(until=lambda: -math.inf, warn=lambda line: None)):  # parts are sent again
                    self._connection.client.put_object(**self._object(key), **self._extra_args, Body=body)
            except (GaveUp, ClientError) as error:
                if isinstance(error, ClientError) and not (
                    error.response["ResponseMetadata"]["HTTPStatusCode"] == _TOO_LARGE  # for a proxy
                    or isinstance(from_response(error.response, self._uri(key)), Unreachable)
                ):
                    raise
                counted.take_back()
                file.seek(0)
                return False
        return True

    def _has_upload(self, key: str) -> bool:
        """Whether the object exists, encrypted with the KMS key of uploads if they have one."""
        found, wanted = self._head_object(key), self._extra_args.get("SSEKMSKeyId")
        if found is None or not wanted:
            return found is not None
        used = found.get("SSEKMSKeyId", "")  # an ARN; an alias does not identify the key
        return used.endswith(wanted) or (bool(used) and "alias/" in wanted)

    @property
    def _connection(self) -> Connection:
        return connection(self._session)

    def _has_conditional_writes(self) -> bool:
        return has_conditional_writes(self._connection, self.bucket, self.folder)

    def _check_bucket(self) -> None:
        """Raises botocore's error if the bucket does not exist, which a HEAD request for an object does not reveal."""
        from botocore.exceptions import ClientError

        try:
            self._connection.client.head_bucket(Bucket=self.bucket, **self._owner)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                raise

    def _object(self, key: str) -> dict[str, Any]:
        check_key(key, self.uri)
        return {"Bucket": self.bucket, "Key": self.folder + key, **self._owner}

    def _uri(self, key: str) -> str:
        return join_uri(self.uri, key)


def _service_time(answer: Any) -> float:
    """The clock of the service at its answer, in seconds since the epoch; this machine's if it is not given."""
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return time.time()


def _finish(transfer: TransferFuture) -> None:
    """Wait for the transfer. Ctrl-C ends its threads, which use the patience of the process."""
    try:
        transfer.result()
    except KeyboardInterrupt:
        default.interrupt()
        raise


class _Counted:
    """A progress report that can be undone."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._count = 0

    def __call__(self, count: int) -> None:
        with self._lock:
            self._count += count
        if self._progress:
            self._progress(count)

    def take_back(self) -> None:
        """Report that everything has to be transferred again."""
        if self._count:
            self(-self._count)


class _Body:
    """A file that reports how much of it was read, which may be more than once."""

    def __init__(self, file: BinaryIO, progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._reported = 0
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        position = self._file.tell()
        self._progress(position - self._reported)
        self._reported = position
        return data


def _subscribers(progress: Progress | None) -> list[Any]:
    from s3transfer.subscribers import BaseSubscriber

    class Report(BaseSubscriber):
        def on_progress(self, future: TransferFuture, bytes_transferred: int, **_: Any) -> None:
            if progress:
                progress(bytes_transferred)

    return [Report()]
