"""Commands in containers, over a WebSocket: https://kubernetes.io/docs/concepts/architecture/control-plane-node-communication/."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import httpcore2 as httpcore
import httpx2 as httpx
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Message
from wsproto.utilities import ProtocolError

from cloudtrain.platforms.kubernetes.api.errors import KubeError

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}
ERRORS, STATUS = 2, 3
"""Channels, in the first byte of each message: the command's standard error, and its final status."""
SECONDS = 15.0
"""How long to wait for a command."""
BROKEN = (httpx.HTTPError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)
"""Errors of a broken connection. The stream of an upgraded connection raises those of httpcore, below httpx."""
LARGEST = 1 << 20
"""The maximum number of bytes to read."""


def wait_for_command(response: httpx.Response, pod: str) -> None:
    """Read the kubelet's response until the command has ended. Raises KubeError if the command failed."""
    errors, status = b"", b""
    try:
        for message in _messages(response):
            if message[:1] == bytes([ERRORS]):
                errors += message[1:]
            elif message[:1] == bytes([STATUS]):
                status += message[1:]
    except (*BROKEN, OSError, ProtocolError) as error:
        raise KubeError(f"the connection to pod {pod} broke: {error}") from None
    finally:
        response.close()
    try:
        found: Any = json.loads(status)
        succeeded, why = found["status"] == "Success", str(found.get("message", ""))
    except (ValueError, LookupError, TypeError):
        succeeded, why = False, "it ended without a status"
    if not succeeded:
        words = errors.decode("utf-8", "replace").strip()
        raise KubeError(f"a command in pod {pod} failed: {words or why}")


def _messages(response: httpx.Response) -> Iterator[bytes]:
    """The binary messages until the other side closes the WebSocket."""
    stream, until = response.extensions["network_stream"], time.monotonic() + SECONDS
    connection, message, size = Connection(ConnectionType.CLIENT), b"", 0
    while time.monotonic() < until and size < LARGEST:
        data = stream.read(1 << 16, timeout=max(until - time.monotonic(), 0.1))
        if not data:
            return
        size += len(data)
        connection.receive_data(data)
        for event in connection.events():
            if isinstance(event, CloseConnection):
                return
            if isinstance(event, Message):
                message += event.data if isinstance(event.data, (bytes, bytearray)) else event.data.encode()
                if event.message_finished:
                    yield message
                    message = b""
