"""The boto3 client of this process, configured by the standard AWS settings."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

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


@dataclass(frozen=True)
class Connection:
    """The clients of one S3 service, shared by the threads of a process."""

    client: S3Client
    writer: S3Client
    """For bodies whose SHA-256 is sent as ``x-amz-checksum-sha256``.

    That header is signed, and the service verifies the body with it; signing the body too would hash it twice.
    """
    transfers: TransferManager
    """Transfers large objects, several parts in parallel."""

    @property
    def is_aws(self) -> bool:
        """Whether this is Amazon S3 itself, rather than a compatible service."""
        return _is_aws(self.client)


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
            _connections[key] = _connect(session)
        return _connections[key]


def _connect(session: Session | None) -> Connection:
    import boto3
    from boto3.s3.transfer import TransferConfig, create_transfer_manager
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": 1},  # `add_patience` retries, and nothing else
    )
    session = session or boto3.Session()
    client = session.client("s3", config=config)
    writer = session.client("s3", config=config.merge(Config(s3={"payload_signing_enabled": False})))
    for one in (client, writer):
        add_patience(one)
    # "auto" lets boto3 use its native client (CRT) where that is known to be faster. Other services cannot use
    # it, as boto3 supports it with TLS only (1.44).
    transfer = TransferConfig(
        multipart_threshold=PART + 1,
        multipart_chunksize=PART,
        max_concurrency=CONNECTIONS // 2,
        preferred_transfer_client="auto" if _is_aws(client) else "classic",
    )
    return Connection(client, writer, create_transfer_manager(client, transfer))


def _is_aws(client: S3Client) -> bool:
    return ".amazonaws.com" in client.meta.endpoint_url
