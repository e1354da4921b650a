"""The boto3 client of this process, configured by the standard AWS settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cloudtrain.storage._retries import add_patience

if TYPE_CHECKING:
    from boto3 import Session
    from mypy_boto3_s3 import S3Client
    from s3transfer.manager import TransferManager

PART = 8 << 20
"""Bytes per part of a large object; objects up to this size are transferred in one request."""
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 10.0
"""Seconds. A request to which the server does not react fails after this time; see `patience` for the next one."""
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
        """For bodies whose SHA-256 is sent as ``x-amz-checksum-sha256``.

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
