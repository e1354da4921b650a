"""The boto3 client of this process, configured by the standard AWS settings."""

from __future__ import annotations

import builtins
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cloudtrain.contract.settings import BOTO3_FOLDER
from cloudtrain.errors import CloudtrainError, StorageError
from cloudtrain.storage.errors import GaveUp, is_transient
from cloudtrain.storage.retry_policy import current

if TYPE_CHECKING:
    from boto3 import Session
    from botocore.model import OperationModel
    from mypy_boto3_s3 import S3Client
    from s3transfer.manager import TransferManager

_KEY = "cloudtrain_outage"

_PROOFS = {
    "CompleteMultipartUpload": ("ETag",),
    "CreateMultipartUpload": ("UploadId",),
    "GetObject": ("ETag", "LastModified"),
    "HeadObject": ("ETag", "LastModified"),
    "ListObjectsV2": ("Name", "IsTruncated", "KeyCount"),
    "PutObject": ("ETag",),
    "UploadPart": ("ETag",),
}
"""The fields of which an answer of S3 has at least one, by operation. A proxy, or another server at the endpoint, may
answer every request with status 200 and a page. That must not count as an object, its bytes or an empty bucket."""


def add_patience(client: S3Client) -> None:
    """Let ``client`` send requests again as long as the `current` patience lasts. Its own retries should be off."""
    handler: Any = _on_answer
    client.meta.events.register_last("needs-retry.s3", handler, unique_id="cloudtrain-patience")


def _on_answer(
    *,
    response: Any,
    caught_exception: Exception | None,
    request_dict: dict[str, Any],
    operation: OperationModel,
    **_: Any,
) -> float | None:
    """The seconds that botocore should wait before it sends the request again; None: it should not."""
    why = _why(response, caught_exception, operation.name)
    if why is None:
        current().answered()
        return None
    context = request_dict["context"]
    outage = context.get(_KEY)
    if outage is None:
        outage = context[_KEY] = current().outage(_uri(request_dict))
    if outage.wait(why):
        return 0
    if caught_exception is not None or response[0].status_code < 300:
        raise GaveUp(why) from caught_exception
    return None


def _why(response: Any, exception: Exception | None, operation: str) -> str | None:
    """Why the request failed, if it is worth another attempt."""
    if exception is not None:
        return str(exception) if _is_transient_exception(exception) else None
    if response is None:
        return None
    http, parsed = response
    error = parsed.get("Error", {})
    code = str(error.get("Code", "")) if isinstance(error, dict) else ""
    if http.status_code < 300:
        proofs = _PROOFS.get(operation)
        is_proved = proofs is None or any(name in parsed for name in proofs)
        return None if is_proved else f"not an answer of S3 (status {http.status_code})"
    if not is_transient(code, http.status_code):
        return None
    return f"the server failed ({http.status_code} {code})"


_LOST = (builtins.ConnectionError, TimeoutError, socket.timeout)
"""Errors of a connection that was lost. On Python 3.9, a timeout of a socket is not a TimeoutError."""


def _is_transient_exception(error: Exception) -> bool:
    from botocore import exceptions

    if isinstance(error, exceptions.SSLError):
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)
    if (
        type(error) is exceptions.HTTPClientError
    ):  # anything raised while the request was sent, also by a progress report
        cause = error.kwargs.get("error")
        if isinstance(cause, CloudtrainError):
            return False
        return isinstance(cause, _LOST) or type(cause).__module__.startswith("urllib3")
    return isinstance(error, (exceptions.ConnectionError, exceptions.HTTPClientError))


def _uri(request: dict[str, Any]) -> str:
    params = request["context"].get("s3_redirect", {}).get("params", {})
    if "Bucket" not in params:
        return str(request.get("url", "S3"))
    return f"s3://{params['Bucket']}/{params.get('Key', params.get('Prefix', ''))}".rstrip("/")


def provide_boto3() -> None:
    """Make ``import boto3`` work.

    The job's own copy is last on the path, so that a version in the image or the requirements takes precedence.

    Raises:
        StorageError: there is none.
    """
    if "boto3" in sys.modules:
        return
    folder = os.environ.get(BOTO3_FOLDER)
    if folder and folder not in sys.path and os.path.isdir(folder):
        sys.path.append(folder)
    if importlib.util.find_spec("boto3") is None:
        raise StorageError(
            f"s3:// needs boto3, and {sys.executable} does not have it",
            hint="Install boto3: in the image of a job, or with its requirements.txt.",
        )


PART = 8 << 20
"""Bytes per part of a large object; objects up to this size are transferred in one request."""
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 10.0
"""Seconds after which a request without a response fails; `retry_policy` decides about the next attempt."""
CONNECTIONS = 32


class Connection:
    """The clients of one S3 service, shared by the threads of a process. Each is created when it is needed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    @property
    def client(self) -> S3Client:
        client: S3Client = self._once("client", self._new_client)
        return client

    @property
    def writer(self) -> S3Client:
        """The client for bodies whose SHA-256 is sent as ``x-amz-checksum-sha256``.

        That header is signed, and the service verifies the body with it; signing the body too would hash it twice.
        """
        settings = {"payload_signing_enabled": False}
        writer: S3Client = self._once("writer", lambda: self._new_client(s3=settings))
        return writer

    @property
    def transfers(self) -> TransferManager:
        """Transfers large objects, several parts in parallel."""
        transfers: TransferManager = self._once("transfers", self._new_transfers)
        return transfers

    @property
    def is_aws(self) -> bool:
        """Whether this is Amazon S3 itself, rather than a compatible service."""
        return ".amazonaws.com" in self.client.meta.endpoint_url

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def _new_client(self, **settings: Any) -> S3Client:
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            max_pool_connections=CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": 1},  # `add_patience` retries, and nothing else
            **settings,
        )
        client = self._session.client("s3", config=config)
        add_patience(client)
        return client

    def _new_transfers(self) -> TransferManager:
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        # "auto" lets boto3 use its native client (CRT) where that is known to be faster. Other services cannot use
        # it, as boto3 supports it with TLS only (1.44).
        config = TransferConfig(
            multipart_threshold=PART + 1,
            multipart_chunksize=PART,
            max_concurrency=CONNECTIONS // 2,
            preferred_transfer_client="auto" if self.is_aws else "classic",
        )
        return create_transfer_manager(self.client, config)


_lock = threading.Lock()
_connections: dict[tuple[object, ...], Connection] = {}


def connection(session: Session | None = None) -> Connection:
    """The connection of this process, created on the first call.

    Without a ``session`` it uses the AWS settings in the environment. A forked child gets its own connection, as
    sockets cannot be shared.
    """
    settings = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
    key = (os.getpid(), session, *settings)
    with _lock:
        if key not in _connections:
            import boto3

            _connections[key] = Connection(session or boto3.Session())
        return _connections[key]
