"""A host's connection to the `Leader`."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import threading
import time
from pathlib import Path

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.leader import LOST_SECONDS, Message

JOIN_TIMEOUT = 600.0
"""Seconds within which all hosts have to join: the machines of a job do not start at the same time."""

Inbox = queue.SimpleQueue[Message]


def listen(rendezvous: str, address: str) -> tuple[socket.socket, str]:
    """Open the leader's socket; returns it with the token that joining hosts must send.

    Args:
        rendezvous: ``host:port``, on a network that only the job uses (the token is then empty); or the path of a file
            to write the address and a new token to, readable by its owner only.
        address: this host's address, for hosts that read the file.

    Raises:
        PlatformError: the port is in use.
    """
    if "/" not in rendezvous:
        port = int(rendezvous.rpartition(":")[2])
        return _bind("", port), ""
    listener = _bind(address, 0)
    token = fresh_token()
    _write_address(Path(rendezvous), f"{address}:{listener.getsockname()[1]}", token)
    return listener, token


def fresh_token() -> str:
    return os.urandom(16).hex()


def _write_address(path: Path, address: str, token: str) -> None:
    """Write address and token to a file that only its owner can read."""
    from cloudtrain.storage.atomic import replace_file  # only few hosts need it

    replace_file(path, f"{address} {token}".encode(), mode=0o600)


def _bind(address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port), backlog=256)
    except OSError as error:
        raise PlatformError(
            f"the leader cannot listen on port {port}: {error.strerror}",
            hint="Choose another port, or end the program that uses this one.",
        ) from None


def free_port() -> int:
    """A port that is free now.

    It is chosen at random below 32768: Linux does not use those for outgoing connections, so it is likely to stay free.
    """
    while True:
        port = 16384 + int.from_bytes(os.urandom(2), "big") % 16384
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


class JoinInterrupted(PlatformError):
    """A signal arrived before the leader was found."""


class LeaderClient:
    """Sends messages to the leader, and puts the leader's messages into ``inbox``.

    Puts ``{"type": "lost"}`` there when the connection is lost.
    """

    def __init__(self, host: str, connection: socket.socket, inbox: Inbox) -> None:
        self._connection = connection
        self._inbox = inbox
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._receive, name="leader-client", daemon=True)

    @classmethod
    def join(cls, host: str, rendezvous: str, inbox: Inbox, timeout: float = JOIN_TIMEOUT) -> LeaderClient:
        """Find the leader and join the job.

        Raises:
            JoinInterrupted: a message arrived in ``inbox`` first.
            PlatformError: the leader was not found within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                address, token = _read_address(rendezvous)
                connection = socket.create_connection(address, timeout=5)
                break
            except (OSError, ValueError) as error:
                if not inbox.empty():
                    raise JoinInterrupted(f"{host}: stopped before the leader was found") from None
                if time.monotonic() > deadline:
                    raise PlatformError(
                        f"{host}: the leader was not found at {rendezvous} within {timeout:.0f} s: {error}",
                        hint="Check that the first host has started, and that the other hosts can reach its port.",
                    ) from None
                time.sleep(0.05)
        connection.settimeout(LOST_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = cls(host, connection, inbox)
        client.send({"type": "join", "host": host, "token": token})
        client._thread.start()
        return client

    def write_address(self, path: Path, token: str) -> None:
        """Write the leader's ``address:port token`` to a file that only its owner can read."""
        host, port, *_ = self._connection.getpeername()
        _write_address(path, f"{host}:{port}", token)

    def send(self, message: Message) -> None:
        """Send a message. If the leader is gone, ``lost`` arrives in the inbox; this does not raise."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _receive(self) -> None:
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    if message["type"] == "beat":
                        self.send(message)
                    else:
                        self._inbox.put(message)
        except (OSError, ValueError):
            pass
        self._inbox.put({"type": "lost"})


def _read_address(rendezvous: str) -> tuple[tuple[str, int], str]:
    if "/" in rendezvous:
        rendezvous, _, token = Path(rendezvous).read_text().partition(" ")
    else:
        token = ""
    address, _, port = rendezvous.rpartition(":")
    return (address, int(port)), token
