"""Sealed messages: only the two ends of a connection can write them, and each arrives once, in order.

A frame is the length of the message (4 bytes), its seal (32 bytes, HMAC-SHA256 over its number in this direction and
the message), and the message. Messages are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import field

from cloudtrain._dataclass import dataclass

LENGTH_BYTES = 4
SEAL_BYTES = 32
MESSAGE_BYTES = 64 << 20
"""The longest message. Only lists of a host's output files are nearly as long."""


class BrokenSeal(ValueError):
    """A message is too long, or was not sealed by the other end."""


def _seal(key: bytes, number: int, message: bytes) -> bytes:
    return hmac.new(key, number.to_bytes(8, "big") + message, hashlib.sha256).digest()


@dataclass
class Sealer:
    """Seals the messages of one direction of a connection."""

    key: bytes = field(repr=False)
    _number: int = 0

    def seal(self, message: bytes) -> bytes:
        """The frame of a message. Send the frames in this order.

        Raises:
            ValueError: the message is longer than `MESSAGE_BYTES`.
        """
        if len(message) > MESSAGE_BYTES:
            raise ValueError(f"a message of {len(message)} bytes is longer than {MESSAGE_BYTES}")
        seal = _seal(self.key, self._number, message)
        self._number += 1
        return len(message).to_bytes(LENGTH_BYTES, "big") + seal + message


@dataclass
class Opener:
    """Opens the frames of one direction of a connection.

    Args:
        key: the key of the other end's `Sealer`.
        limit: the longest message that is accepted, in bytes.
    """

    key: bytes = field(repr=False)
    limit: int = MESSAGE_BYTES
    _number: int = 0
    _buffer: bytearray = field(default_factory=bytearray, repr=False)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received data; yields the complete messages.

        Raises:
            BrokenSeal: the connection can no longer be trusted. Close it.
        """
        self._buffer += data
        head = LENGTH_BYTES + SEAL_BYTES
        while len(self._buffer) >= LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
            if length > self.limit:
                raise BrokenSeal(f"a message of {length} bytes is longer than {self.limit}")
            if len(self._buffer) < head + length:
                return
            seal = bytes(self._buffer[LENGTH_BYTES:head])
            message = bytes(self._buffer[head : head + length])
            if not hmac.compare_digest(seal, _seal(self.key, self._number, message)):
                raise BrokenSeal("a message was changed on its way, or comes from someone else")
            self._number += 1
            del self._buffer[: head + length]
            yield message
