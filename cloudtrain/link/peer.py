"""An authenticated connection in a selector loop. Nothing here waits."""

from __future__ import annotations

import contextlib
import selectors
import socket
from typing import Any

from cloudtrain.link.handshake import Keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.link.tls import Tls

RECEIVE_BYTES = 1 << 18


class Peer:
    """Sends and receives sealed messages on a socket that it owns.

    Args:
        data: the data registered with the selector, by default the peer. Call `handle` after each ``select`` that
            reports it.
        limit: the longest message that is accepted, in bytes; None: the limit of `cloudtrain.link.sealing`.
        tls: encrypts the connection; None if it stays on this machine.
    """

    def __init__(
        self,
        connection: socket.socket,
        keys: Keys,
        selector: selectors.BaseSelector,
        data: Any = None,
        limit: int | None = None,
        tls: Tls | None = None,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._sealer, self._opener = keys.sealer(), keys.opener()
        if limit is not None:
            self._opener.limit = limit
        self._selector, self._data = selector, self if data is None else data
        self._tls = tls
        self._outgoing = bytearray(tls.send(b"") if tls else b"")
        self.closed = False
        selector.register(connection, selectors.EVENT_READ, self._data)
        self._flush()

    def send(self, message: bytes) -> None:
        """Send as soon as the network accepts data. `handle` notices a broken connection."""
        if not self.closed:
            frame = self._sealer.seal(message)
            self._outgoing += self._tls.send(frame) if self._tls else frame
            self._flush()

    @property
    def is_idle(self) -> bool:
        """Whether everything has been sent."""
        return self.closed or not self._outgoing

    def handle(self, mask: int) -> list[bytes]:
        """Send and receive after a ``select``; returns the complete messages.

        Raises:
            EOFError: the other end has closed the connection.
            NotAuthenticated: the server does not have the job's certificate.
            OSError: the connection is broken.
            BrokenSeal: the connection can no longer be trusted.
        """
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ:
            return []
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        if not data:
            raise EOFError("the other end has closed the connection")
        if self._tls:
            data, answer = self._tls.receive(data)
            self._outgoing += answer
            self._flush()
        return list(self._opener.feed(data))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._outgoing.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        with contextlib.suppress(KeyError):
            self._selector.modify(self._socket, events, self._data)
