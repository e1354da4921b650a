"""Both ends of a new connection prove that they have a key, and neither sends it.

    client → server   MAGIC, purpose, nonce of the client               48 bytes
    server → client   nonce of the server, proof of the server          64 bytes
    client → server   proof of the client                               32 bytes

A proof is an HMAC-SHA256 under the key over the prover's role, the purpose and both nonces. The role makes a reflected
proof worthless, the nonces a recorded one. The client proves itself last: a server without the key learns nothing
that it could not compute. The keys of the connection (`Keys`) come from the same values, so that an attacker who relays
a handshake cannot send further messages (see `cloudtrain.link.sealing`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import field

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import PlatformError
from cloudtrain.link.sealing import Opener, Sealer

MAGIC = b"ctlink1\n"
PURPOSE_BYTES = 8
ENCRYPTED = "+"
"""The suffix of a purpose whose connection is encrypted after the handshake. The client chooses, and its proof covers
the choice."""
NONCE_BYTES = 32
PROOF_BYTES = 32
HELLO_BYTES = len(MAGIC) + PURPOSE_BYTES + NONCE_BYTES
CHALLENGE_BYTES = NONCE_BYTES + PROOF_BYTES


class NotAuthenticated(PlatformError):
    """The other end of a connection does not have the key."""


@dataclass(frozen=True)
class Keys:
    """The keys of one connection, for sealed messages."""

    send: bytes = field(repr=False)
    receive: bytes = field(repr=False)

    def sealer(self) -> Sealer:
        return Sealer(self.send)

    def opener(self) -> Opener:
        return Opener(self.receive)


def is_loopback(address: str) -> bool:
    """Whether a connection to this address stays on the machine, so that it is not encrypted."""
    return address.startswith("127.") or address == "::1"


def _hmac(key: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.new(key, label + transcript, hashlib.sha256).digest()


def _keys(key: bytes, transcript: bytes, own: bytes, other: bytes) -> Keys:
    return Keys(
        _hmac(key, b"messages of the " + own, transcript), _hmac(key, b"messages of the " + other, transcript)
    )


def prove(connection: socket.socket, key: bytes, purpose: str, deadline: float) -> Keys:
    """The client's part, on a connected socket. Leaves the socket without a timeout.

    Args:
        deadline: when to give up, on the clock of `time.monotonic`.

    Raises:
        NotAuthenticated: the server does not have the key, or does not use this protocol.
        OSError: the connection was closed or the deadline has passed.
    """
    hello = MAGIC + purpose.encode().ljust(PURPOSE_BYTES, b"\0") + os.urandom(NONCE_BYTES)
    connection.settimeout(max(0.01, deadline - time.monotonic()))
    connection.sendall(hello)
    challenge = _receive(connection, CHALLENGE_BYTES, deadline)
    transcript = hello + challenge[:NONCE_BYTES]
    if not hmac.compare_digest(challenge[NONCE_BYTES:], _hmac(key, b"server", transcript)):
        raise NotAuthenticated("it does not know the secret of this job")
    connection.sendall(_hmac(key, b"client", transcript))
    connection.settimeout(None)
    return _keys(key, transcript, b"client", b"server")


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the connection was closed before the other end had proved itself")
        data += part
    return data


class Examination:
    """The server's part on one connection, as data arrives. Never waits.

    Args:
        connection: a non-blocking socket.
        keys: the key of each purpose that the server serves.
    """

    def __init__(self, connection: socket.socket, keys: Mapping[str, bytes]) -> None:
        self._connection = connection
        self._candidates = keys
        self._data = b""
        self._key = b""
        self._transcript = b""
        self.purpose = ""
        """The purpose that the client named. Its proof covers it."""
        self.encrypted = False
        """Whether the client continues with TLS."""
        self.keys: Keys | None = None
        """The keys of the connection, once the client has proved itself."""

    def advance(self) -> None:
        """Read the data that has arrived, and answer. Reads no byte beyond the client's proof.

        Raises:
            NotAuthenticated: the client does not have the key, or does not use this protocol.
            OSError: the connection was closed.
        """
        with contextlib.suppress(BlockingIOError, InterruptedError):
            while self.keys is None:
                needed = PROOF_BYTES if self._transcript else HELLO_BYTES
                part = self._connection.recv(needed - len(self._data))
                if not part:
                    raise ConnectionResetError("it closed the connection")
                self._data += part
                if not self._transcript and not MAGIC.startswith(self._data[: len(MAGIC)]):
                    raise NotAuthenticated("it speaks another protocol")
                if len(self._data) == needed:
                    frame, self._data = self._data, b""
                    if self._transcript:
                        self._check(frame)
                    else:
                        self._challenge(frame)

    def _challenge(self, hello: bytes) -> None:
        name = hello[len(MAGIC) : -NONCE_BYTES].rstrip(b"\0").decode("ascii", "replace")
        self.purpose, self.encrypted = name.rstrip(ENCRYPTED), name.endswith(ENCRYPTED)
        if self.purpose not in self._candidates:
            raise NotAuthenticated("it asks for something that is not served here")
        self._key = self._candidates[self.purpose]
        nonce = os.urandom(NONCE_BYTES)
        self._transcript = hello + nonce
        challenge = nonce + _hmac(self._key, b"server", self._transcript)
        if self._connection.send(challenge) < len(challenge):
            raise NotAuthenticated("it does not read")

    def _check(self, proof: bytes) -> None:
        if not hmac.compare_digest(proof, _hmac(self._key, b"client", self._transcript)):
            raise NotAuthenticated("it does not know the secret of this job")
        self.keys = _keys(self._key, self._transcript, b"server", b"client")
