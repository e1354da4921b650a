"""A conversation that outlives its connections: no message is lost, and none is handled twice.

Each end numbers its messages and keeps them until the other end has acknowledged them. After a new connection, each end
reports how many messages it has received, and the other sends the rest again.

An envelope is the number of the message (8 bytes; 0 if it is never sent again), the number of the last message
received from the other end (8 bytes), and the message.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

_HEAD = struct.Struct(">QQ")


class Conversation:
    """One end of a conversation."""

    def __init__(self) -> None:
        self.received = 0
        """The number of messages that have been read."""
        self._sent = 0
        self._unacknowledged: deque[tuple[int, bytes]] = deque()

    def write(self, message: bytes) -> bytes:
        """The envelope of a message, which is kept until it is acknowledged."""
        self._sent += 1
        self._unacknowledged.append((self._sent, message))
        return self._envelope(self._sent, message)

    def write_fleeting(self, message: bytes) -> bytes:
        """The envelope of a message that is not sent again."""
        return self._envelope(0, message)

    def read(self, envelope: bytes) -> bytes | None:
        """The message; None if it was read before.

        Raises:
            ValueError: it is not an envelope, or messages before it are missing.
        """
        if len(envelope) < _HEAD.size:
            raise ValueError("not an envelope")
        number, acknowledged = _HEAD.unpack_from(envelope)
        self._forget(acknowledged)
        if number:
            if number <= self.received:
                return None
            if number != self.received + 1:
                raise ValueError(f"message {number} came after message {self.received}")
            self.received = number
        return envelope[_HEAD.size :]

    def resume(self, received: int) -> Iterator[bytes]:
        """The envelopes to send again to an end that has received the first ``received`` messages."""
        self._forget(received)
        for number, message in list(self._unacknowledged):
            yield self._envelope(number, message)

    def _envelope(self, number: int, message: bytes) -> bytes:
        return _HEAD.pack(number, self.received) + message

    def _forget(self, received: int) -> None:
        while self._unacknowledged and self._unacknowledged[0][0] <= received:
            self._unacknowledged.popleft()
