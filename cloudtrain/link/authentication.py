"""Admits peers to a server that runs in one thread. Unauthenticated peers cost next to nothing.

At most `MOST` connections are unauthenticated at the same time, each for `SECONDS`, with less than 200 bytes of memory
in this process. When there are more, the oldest connection from the address with the most of them is closed: a flood
from one machine, or one IPv6 network, displaces only its own connections. However fast others connect, no connection is
closed before `UNDISTURBED_SECONDS`, in which an honest peer proves itself. Others wait in the kernel's queue meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from cloudtrain._dataclass import dataclass
from cloudtrain.link.handshake import Examination, Keys, NotAuthenticated

MOST = 64
SECONDS = 5.0
UNDISTURBED_SECONDS = 0.05
ACCEPTS_AT_ONCE = 16
"""After this many new connections, the admitted peers are served first."""
BACKLOG = 256
"""The listener's backlog: connections that wait in the kernel."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Admitted:
    """A peer that has the key of ``purpose``. Its socket is non-blocking, and is the caller's to close."""

    socket: socket.socket
    purpose: str
    keys: Keys
    address: str
    encrypted: bool
    """Whether the connection continues with TLS (`cloudtrain.link.tls`)."""


@dataclass
class _Unproved:
    socket: socket.socket
    address: str
    examination: Examination
    since: float = field(default_factory=time.monotonic)


class Gate:
    """The listener of a server, and the connections that are not authenticated yet.

    All are registered with the server's selector, with the gate as ``data``::

        events = selector.select(0.1)
        for peer in gate.admit(key.fileobj for key, _ in events if key.data is gate):
            selector.register(peer.socket, selectors.EVENT_READ, ...)

    Call `admit` after every ``select``, at least twice a second.

    Args:
        listener: a listening socket, with a backlog of `BACKLOG`. `close` closes it.
        keys: the key of each purpose that the server serves.
    """

    def __init__(
        self, listener: socket.socket, keys: Mapping[str, bytes], selector: selectors.BaseSelector
    ) -> None:
        self._listener = listener
        self._keys = dict(keys)
        self._selector = selector
        self._unproved: dict[socket.socket, _Unproved] = {}
        """Oldest first."""
        self._paused_until: float | None = None
        self.refused = 0
        """The number of connections that were closed unauthenticated."""
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self)

    def admit(self, ready: Iterable[object]) -> list[Admitted]:
        """Handle the data that has arrived; returns the peers that have proved themselves since the last call.

        Args:
            ready: the gate's sockets that are ready to be read. Others are ignored.
        """
        admitted = []
        knocking = False
        for item in ready:
            if item is self._listener:
                knocking = True
            elif isinstance(item, socket.socket) and item in self._unproved:
                admitted += self._advance(self._unproved[item])
        now = time.monotonic()
        self._expire(now)
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
            self._selector.register(self._listener, selectors.EVENT_READ, self)
            knocking = True
        if knocking and self._paused_until is None:
            admitted += self._accept(now)
        return admitted

    def close(self) -> None:
        """Close the listener and every connection that is not authenticated."""
        for peer in list(self._unproved.values()):
            self._refuse(peer)
        if self._paused_until is None:
            self._selector.unregister(self._listener)
        self._paused_until = float("inf")
        self._listener.close()

    def _accept(self, now: float) -> list[Admitted]:
        admitted: list[Admitted] = []
        for _ in range(ACCEPTS_AT_ONCE):
            if len(self._unproved) >= MOST and not self._close_one(now):
                break
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    # the listener stays ready: without a pause, the server's loop would spin
                    self._close_one(float("inf"))
                    self._pause(now + UNDISTURBED_SECONDS)
                    break
                continue  # it disconnected before it was accepted
            source = source_of(address)
            connection.setblocking(False)
            peer = _Unproved(connection, source, Examination(connection, self._keys))
            self._unproved[connection] = peer
            self._selector.register(connection, selectors.EVENT_READ, self)
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            admitted += self._advance(peer)
        return admitted

    def _advance(self, peer: _Unproved) -> list[Admitted]:
        try:
            peer.examination.advance()
        except (NotAuthenticated, OSError):
            self._refuse(peer)
            return []
        examination = peer.examination
        if examination.keys is None:
            return []
        self._selector.unregister(peer.socket)
        del self._unproved[peer.socket]
        return [
            Admitted(peer.socket, examination.purpose, examination.keys, peer.address, examination.encrypted)
        ]

    def _close_one(self, now: float) -> bool:
        """Close one connection. Returns False, after setting a pause, if none may be closed yet."""
        if not self._unproved:
            return False
        count = Counter(peer.address for peer in self._unproved.values())
        most = max(count.values())
        victim = next(peer for peer in self._unproved.values() if count[peer.address] == most)
        if now < victim.since + UNDISTURBED_SECONDS:
            self._pause(victim.since + UNDISTURBED_SECONDS)
            return False
        self._refuse(victim)
        return True

    def _pause(self, until: float) -> None:
        if self._paused_until is None:
            self._selector.unregister(self._listener)
        self._paused_until = until

    def _expire(self, now: float) -> None:
        for peer in list(self._unproved.values()):
            if now < peer.since + SECONDS:
                break
            self._refuse(peer)

    def _refuse(self, peer: _Unproved) -> None:
        self.refused += 1
        self._selector.unregister(peer.socket)
        del self._unproved[peer.socket]
        peer.socket.close()


def source_of(address: object) -> str:
    """The address that a connection counts for. For IPv6, the network, as one machine can have all of its addresses."""
    host = str(address[0]) if isinstance(address, tuple) else ""
    if ":" not in host or host.startswith("::ffff:"):
        return host
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8].hex()
