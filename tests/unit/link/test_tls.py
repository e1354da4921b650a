"""Encrypted connections with the certificate of a job, over real sockets."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from cloudtrain.link.handshake import Keys, NotAuthenticated
from cloudtrain.link.peer import Peer
from cloudtrain.link.secret import derive
from cloudtrain.link.tls import Tls, make_certificate, server_context, wrap_client

KEY = derive("s", "tls")
OTHER = derive("another", "tls")
KEYS = Keys(b"client", b"server"), Keys(b"server", b"client")


class Ends:
    """A client and a server on two selectors, with a wire between them that keeps what passes."""

    def __init__(self, server_key: bytes = KEY) -> None:
        self.selector = selectors.DefaultSelector()
        near, self.wire_near = socket.socketpair()
        self.wire_far, far = socket.socketpair()
        self.passed = b""
        for end, to in ((self.wire_near, self.wire_far), (self.wire_far, self.wire_near)):
            self.selector.register(end, selectors.EVENT_READ, to)
        certificate = make_certificate(KEY).der
        self.client = Peer(near, KEYS[0], self.selector, tls=Tls(certificate=certificate))
        self.server = Peer(far, KEYS[1], self.selector, tls=Tls(server_context(server_key)))

    def run(self, until: int) -> dict[Peer, list[bytes]]:
        """Move bytes until so many messages have arrived."""
        arrived: dict[Peer, list[bytes]] = {self.client: [], self.server: []}
        deadline = time.monotonic() + 60
        while sum(map(len, arrived.values())) < until:
            assert time.monotonic() < deadline
            for key, mask in self.selector.select(1):
                if isinstance(key.data, Peer):
                    arrived[key.data] += key.data.handle(mask)
                else:
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    self.passed += data
                    key.data.sendall(data)
        return arrived


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    close(ends)


def close(ends: Ends) -> None:
    for end in (ends.client, ends.server, ends.wire_near, ends.wire_far, ends.selector):
        end.close()


def test_messages_arrive_and_cannot_be_read_on_the_way(ends: Ends) -> None:
    large = b"a large message " * 100_000
    ends.client.send(b"the first message")
    ends.client.send(large)
    ends.server.send(b"an answer")
    arrived = ends.run(3)
    assert arrived == {ends.client: [b"an answer"], ends.server: [b"the first message", large]}
    assert len(ends.passed) > len(large)
    assert not any(text in ends.passed for text in (b"message", b"answer"))


def test_another_certificate_is_refused_before_anything_is_sent() -> None:
    ends = Ends(server_key=OTHER)
    ends.client.send(b"a secret message")
    with pytest.raises(NotAuthenticated, match="certificate of this job"):
        ends.run(1)
    close(ends)


def test_changed_bytes_end_the_connection(ends: Ends) -> None:
    ends.client.send(b"1")
    ends.run(1)
    ends.wire_far.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(ssl.SSLError):
        ends.run(1)


def test_a_blocking_client_checks_the_certificate_too() -> None:
    for key, raises in ((KEY, contextlib.nullcontext()), (OTHER, pytest.raises(NotAuthenticated))):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            connection, _ = listener.accept()
            selector = selectors.DefaultSelector()
            server = Peer(connection, KEYS[1], selector, tls=Tls(server_context(key)))
            with serving(server, selector), raises:
                wrap_client(client, make_certificate(KEY).der).close()
            client.close()
            server.close()
            selector.close()


@contextlib.contextmanager
def serving(server: Peer, selector: selectors.BaseSelector) -> Iterator[None]:
    import threading

    over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(EOFError, OSError):
            while not over.is_set():
                for _, mask in selector.select(0.05):
                    server.handle(mask)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_every_host_makes_the_same_certificate() -> None:
    assert make_certificate(KEY) == make_certificate(KEY)
    assert make_certificate(KEY).der != make_certificate(OTHER).der
    assert "PRIVATE" not in repr(make_certificate(KEY))
