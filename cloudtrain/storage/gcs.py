"""A store of the objects below a prefix in a bucket of Google Cloud Storage."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Callable

from cloudtrain._system.files import replace
from cloudtrain.errors import AccessDenied, NotFound, StorageError, Unreachable
from cloudtrain.storage._streams import Body
from cloudtrain.storage.atomic import is_temporary, temporary_sibling
from cloudtrain.storage.base import AlteredBody, Data, ObjectInfo, Progress, opened
from cloudtrain.storage.errors import file_errors, is_transient
from cloudtrain.storage.retry_policy import ATTEMPTS, current
from cloudtrain.storage.transfer import move_each
from cloudtrain.storage.uri import check_key, join_uri, split_bucket_uri

if TYPE_CHECKING:
    from google.api_core.retry import Retry
    from google.cloud.storage import Blob, Bucket, Client

PART = 8 << 20
"""Bytes per request of a large upload, and of a stream."""
TIMEOUT = (5.0, 60.0)
"""Seconds to connect, and to wait for the next byte. A request that fails after this time is sent again."""

_TYPE = "application/octet-stream"
_REQUEST_TIMEOUT = 408
_CREDENTIALS = (
    "Run gcloud auth application-default login, name the key of a service account in GOOGLE_APPLICATION_CREDENTIALS, "
    "or give the machine a service account, and check its roles on the bucket."
)
_SERVICE = "Check the network, the proxy variables, and STORAGE_EMULATOR_HOST if you use an emulator."


class GCSStore:
    """A `Store` on Google Cloud Storage, through the library ``google-cloud-storage``.

    Uses Application Default Credentials; with ``STORAGE_EMULATOR_HOST``, an emulator without credentials. The current
    `retry_policy` decides how long requests are retried. Objects are transferred as they are stored: one with
    ``Content-Encoding: gzip`` stays compressed.
    """

    def __init__(self, uri: str) -> None:
        if importlib.util.find_spec("google") is None or not importlib.util.find_spec("google.cloud.storage"):
            raise StorageError(
                f"gs:// needs google-cloud-storage, and {sys.executable} does not have it",
                hint="Install google-cloud-storage: on this machine, or in the image of the job.",
            )
        self.bucket, prefix = split_bucket_uri(uri, "gs")
        self.folder = prefix and prefix + "/"
        self.uri = f"gs://{self.bucket}/{prefix}".rstrip("/")

    def read(self, key: str) -> bytes:
        with _gcs_errors(self._uri(key)):
            file = io.BytesIO()
            self._download(key, file)
            return file.getvalue()

    def open(self, key: str) -> BinaryIO:
        with _gcs_errors(self._uri(key)):
            blob = self._blob(key)
            blob.reload(retry=self._retry(key), timeout=TIMEOUT)

        def fetch(start: int, stop: int) -> bytes:
            with _gcs_errors(self._uri(key)):
                data: bytes = blob.download_as_bytes(
                    start=start,
                    end=stop - 1,
                    checksum=None,  # the service has none for a range
                    if_generation_match=blob.generation,
                    retry=self._retry(key),
                    timeout=TIMEOUT,
                    raw_download=True,
                )
                return data

        return io.BufferedReader(_Ranges(fetch, blob.size), PART)

    def write(self, key: str, data: Data, *, sha256: bytes | None = None) -> None:
        with _gcs_errors(self._uri(key)):
            body: Any = io.BytesIO(data) if isinstance(data, bytes) else Body(data)
            size = len(data) if isinstance(data, bytes) else len(body)
            self._send(io.BufferedReader(body, PART), size, key)

    def create(self, key: str, data: bytes) -> bool:
        from google.api_core.exceptions import PreconditionFailed

        failures: list[str] = []
        with _gcs_errors(self._uri(key)):
            try:
                self._send(io.BytesIO(data), len(data), key, failures.append, if_generation_match=0)
            except PreconditionFailed:
                # The response to the first attempt may have been lost: it may have created this object.
                return bool(failures) and self.read(key) == data
            return True

    def stat(self, key: str) -> ObjectInfo | None:
        with _gcs_errors(self._uri(key)):
            check_key(key, self.uri)
            found = self._bucket.get_blob(self.folder + key, retry=self._retry(key), timeout=TIMEOUT)
            if found is None and not self._bucket.exists(retry=self._retry(key), timeout=TIMEOUT):
                raise NotFound(f"{self.uri}: there is no bucket {self.bucket!r}", hint="Create it.")
            return found and self._info(found)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with _gcs_errors(f"{self.uri}/{prefix}" if prefix else self.uri):
            found = _client().list_blobs(
                self.bucket,
                prefix=self.folder + prefix,
                fields="items(name,size,updated),nextPageToken",
                retry=self._retry(),
                timeout=TIMEOUT,
            )
            for blob in found:
                info = self._info(blob)
                if info.key and not is_temporary(info.key.rpartition("/")[2]):
                    yield info

    def delete(self, keys: Iterable[str]) -> None:
        from google.api_core.exceptions import NotFound as Missing

        def delete(key: str, _: Progress) -> None:
            # Keys are not checked: whatever `list` returns can be deleted.
            with _gcs_errors(f"{self.uri}/{key}"), contextlib.suppress(Missing):
                self._bucket.blob(self.folder + key).delete(retry=self._retry(), timeout=TIMEOUT)

        move_each([*keys], delete, None)

    def download(self, key: str, path: Path, progress: Progress | None = None) -> None:
        with _gcs_errors(self._uri(key)), temporary_sibling(path) as temporary:
            with open(temporary, "wb") as file:
                self._download(key, _Counted(file, progress))
            replace(temporary, path)

    def upload(
        self, source: Path | BinaryIO, key: str, progress: Progress | None = None, *, if_absent: bool = False
    ) -> bool:
        from google.api_core.exceptions import PreconditionFailed

        with _gcs_errors(self._uri(key)), opened(source) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                self._send(_Counted(file, progress), size, key, if_generation_match=0 if if_absent else None)
            except PreconditionFailed:
                return False
            return True

    def _send(
        self,
        file: Any,
        size: int,
        key: str,
        on_failure: Callable[[str], None] | None = None,
        *,
        if_generation_match: int | None = None,
    ) -> None:
        blob = self._blob(key)
        blob.chunk_size = PART if size > PART else None
        retry = self._retry(key, on_failure)

        def send() -> None:
            file.seek(0)
            blob.upload_from_file(
                file,
                size=size,
                content_type=_TYPE,
                retry=retry,
                timeout=TIMEOUT,
                if_generation_match=if_generation_match,
            )

        self._until_answered(key, send)

    def _download(self, key: str, file: Any) -> None:
        """The library compares the checksum, and resumes a body that breaks off."""
        blob, retry = self._blob(key), self._retry(key)

        def download() -> None:
            file.seek(0)
            file.truncate()
            blob.download_to_file(file, retry=retry, timeout=TIMEOUT, raw_download=True)
            if blob.crc32c is None and blob.md5_hash is None:
                raise JSONDecodeError("no checksum", "", 0)

        self._until_answered(key, download)

    def _until_answered(self, key: str, request: Callable[[], None]) -> None:
        """Repeat a request until the service itself answers it: a proxy may return a page with status 200."""
        outage = current().outage(self._uri(key))
        while True:
            try:
                return request()
            except JSONDecodeError as error:
                why = "not an answer of Google Cloud Storage"
                if not outage.wait(why):
                    raise Unreachable(f"{self._uri(key)}: {why}", hint=_SERVICE) from error

    def _retry(self, key: str = "", on_failure: Callable[[str], None] | None = None) -> Retry:
        """Retries by the current `retry_policy`, which pauses in the predicate."""
        from google.api_core.retry import Retry
        from google.cloud.storage.exceptions import DataCorruption

        outage = current().outage(f"{self.uri}/{key}")
        ended, altered = math.inf, 0

        def is_worth_another(error: Exception) -> bool:
            nonlocal outage, ended, altered
            why = _why_transient(error)
            if why is None:
                return False
            if on_failure:
                on_failure(why)
            if time.monotonic() - ended > sum(TIMEOUT):  # other requests of this transfer were answered since
                current().answered()
                outage = current().outage(f"{self.uri}/{key}")
            altered += isinstance(error, DataCorruption)
            again = altered < ATTEMPTS and outage.wait(why)
            ended = time.monotonic()
            return again

        return Retry(predicate=is_worth_another, initial=0, maximum=0, timeout=None)

    @property
    def _bucket(self) -> Bucket:
        return _client().bucket(self.bucket)

    def _blob(self, key: str) -> Blob:
        check_key(key, self.uri)
        return self._bucket.blob(self.folder + key)

    def _info(self, blob: Blob) -> ObjectInfo:
        return ObjectInfo(
            blob.name[len(self.folder) :], blob.size, blob.updated.timestamp() if blob.updated else 0.0
        )

    def _uri(self, key: str) -> str:
        return join_uri(self.uri, key)


class _Ranges(io.RawIOBase):
    """An object of ``size`` bytes, from beginning to end, as ranges of it."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._fetch, self._size, self._position = fetch, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        if stop == self._position:
            return 0
        data = self._fetch(self._position, stop)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


class _Counted:
    """A file that reports how far it was read or written, also backwards when a part is repeated."""

    def __init__(self, file: BinaryIO, progress: Progress | None) -> None:
        self._file, self._progress, self._reported = file, progress, 0

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._report()
        return data

    def write(self, data: bytes) -> int:
        count = self._file.write(data)
        self._report()
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = self._file.seek(offset, whence)
        self._report()
        return position

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self) -> int:
        return self._file.truncate()

    def _report(self) -> None:
        moved = self._file.tell() - self._reported
        self._reported += moved
        if moved and self._progress:
            self._progress(moved)


_lock = threading.Lock()
_clients: dict[tuple[object, ...], Client] = {}


def _client() -> Client:
    """The client of this process and its settings. Raises google.auth's errors."""
    names = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT")
    key = (os.getpid(), *(os.environ.get(name) for name in names))
    with _lock:
        if key not in _clients:
            from google.cloud.storage import Client

            _clients[key] = Client()
        return _clients[key]


def _status(error: Exception) -> int:
    """The HTTP status of the answer; 0 if there was none."""
    answer = getattr(error, "response", None)
    return int(getattr(error, "code", None) or getattr(answer, "status_code", None) or 0)


def _why_transient(error: Exception) -> str | None:
    """Why the request failed, if it is worth another attempt."""
    from google.auth.exceptions import TransportError
    from google.cloud.storage.exceptions import DataCorruption
    from requests import RequestException

    status = _status(error)
    if status >= 300:
        again = status == _REQUEST_TIMEOUT or is_transient("", status)
        return f"the server failed ({status})" if again else None
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return None
    is_lost = isinstance(error, (RequestException, TransportError, HTTPException, DataCorruption))
    return _reason(error) if is_lost or type(error).__module__.startswith("urllib3") else None


def _reason(error: Exception) -> str:
    """Only the reason, from a message that repeats the request and names each exception in the chain."""
    for pattern in (r"\[Errno -?\d+\] ([\w ]+)", r"(timed out)", r"Caused by (\w+)"):
        if found := re.search(pattern, str(error)):
            return found[1]
    return str(error)


@contextlib.contextmanager
def _gcs_errors(uri: str) -> Iterator[None]:
    """Turn the library's error, or an OSError, in the body into a StorageError about ``uri``."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except StorageError:
        raise
    except DataCorruption as error:
        raise AlteredBody(f"{uri}: the response is damaged: {error}", hint=_SERVICE) from error
    except (GoogleAPICallError, InvalidResponse) as error:
        raise _from_answer(error, uri) from error
    except GoogleAuthError as error:
        reason = "no Google credentials were found" if isinstance(error, DefaultCredentialsError) else error
        raise AccessDenied(f"{uri}: {reason}", hint=_CREDENTIALS) from error
    except (RequestException, HTTPError, HTTPException) as error:
        raise Unreachable(f"{uri}: {_reason(error)}", hint=_SERVICE) from error
    except OSError:
        with file_errors(uri):
            raise
    else:
        current().answered()


def _from_answer(error: Exception, uri: str) -> StorageError:
    status, message = _status(error), str(getattr(error, "message", error))
    if status == 404:
        bucket = uri.partition("://")[2].partition("/")[0]
        if "bucket" in message and "No such object" not in message:
            return NotFound(f"{uri}: there is no bucket {bucket!r}", hint="Create it.")
        return NotFound(f"{uri} does not exist")
    if status in (401, 403):
        return AccessDenied(f"{uri}: access denied: {message}", hint=_CREDENTIALS)
    if status == 412:
        return Unreachable(f"{uri} changed while it was being read", hint="Try again.")
    if is_transient("", status):
        return Unreachable(f"{uri}: the server failed ({status}): {message}", hint=_SERVICE)
    return StorageError(f"{uri}: {message}")
