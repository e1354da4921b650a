"""A host's side of the conversation with the leader's `Leader`."""

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
"""Seconds in which all hosts have to find each other: machines of one job do not start at the same time."""

Inbox = queue.SimpleQueue[Message]


def listen(rendezvous: str, address: str) -> tuple[socket.socket, str]:
    """The leader's socket, and the token that hosts have to show.

    Args:
        rendezvous: ``host:port`` (on a network of the job's own: the token is empty), or the path of a file, in
            which the address and a fresh token are then written, readable for the owner only.
        address: of this host, for the hosts that read that file.

    Raises:
        PlatformError: the port is taken.
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
    """Write both into a file that only the owner can read."""
    from cloudtrain.storage.atomic import replace_file  # few hosts need it

    replace_file(path, f"{address} {token}".encode(), mode=0o600)


def _bind(address: str, port: int) -> socket.socket:
    try:
        return socket.create_server((address, port), backlog=256)
    except OSError as error:
        raise PlatformError(
            f"port {port} cannot be listened on: {error.strerror}",
            hint="Another program has it: end that one, or choose another port.",
        ) from None


def free_port() -> int:
    """A port that nobody listens on now.

    Chosen at random below 32768, where Linux takes no ports for outgoing connections: it stays free for longer.
    """
    while True:
        port = 16384 + int.from_bytes(os.urandom(2), "big") % 16384
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


class JoinInterrupted(PlatformError):
    """A signal came before the leader was found."""


class LeaderClient:
    """Sends to the leader; what the leader says is put into ``inbox``, as is ``{"type": "lost"}``."""

    def __init__(self, host: str, connection: socket.socket, inbox: Inbox) -> None:
        self._connection = connection
        self._inbox = inbox
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="leader-client", daemon=True)

    @classmethod
    def join(cls, host: str, rendezvous: str, inbox: Inbox, timeout: float = JOIN_TIMEOUT) -> LeaderClient:
        """Find the leader and join.

        Raises:
            JoinInterrupted: a message came into ``inbox`` meanwhile.
            PlatformError: the leader was not there within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                address, token = _leader(rendezvous)
                connection = socket.create_connection(address, timeout=5)
                break
            except (OSError, ValueError) as error:
                if not inbox.empty():
                    raise JoinInterrupted(f"{host}: stopped before the leader was found") from None
                if time.monotonic() > deadline:
                    raise PlatformError(
                        f"{host}: the leader was not found at {rendezvous} within {timeout:.0f} s: {error}",
                        hint="Did the first host start? Is its port open to the other hosts?",
                    ) from None
                time.sleep(0.05)
        connection.settimeout(LOST_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = cls(host, connection, inbox)
        client.send({"type": "join", "host": host, "token": token})
        client._thread.start()
        return client

    def write_address(self, path: Path, token: str) -> None:
        """Write ``address:port token`` of the leader into a file that only the owner can read."""
        host, port, *_ = self._connection.getpeername()
        _write_address(path, f"{host}:{port}", token)

    def send(self, message: Message) -> None:
        """Tell the leader. A leader that is gone is told of by ``lost``, not here."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _listen(self) -> None:
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


def _leader(rendezvous: str) -> tuple[tuple[str, int], str]:
    if "/" in rendezvous:
        rendezvous, _, token = Path(rendezvous).read_text().partition(" ")
    else:
        token = ""
    address, _, port = rendezvous.rpartition(":")
    return (address, int(port)), token
