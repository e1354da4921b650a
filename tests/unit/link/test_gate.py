"""A server behind a `Gate`, with peers that cannot prove themselves."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cloudtrain.link import authentication as gates, handshake, secret
from cloudtrain.link.authentication import Gate

KEY = secret.derive("s", "control")


class Server:
    """Admits peers and answers each message with itself, in one thread."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=gates.BACKLOG)
        self.address = self.listener.getsockname()
        self.selector = selectors.DefaultSelector()
        self.gate = Gate(self.listener, {"control": KEY}, self.selector)
        self.most_open = self.rounds = 0
        self.over = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.over:
            events = self.selector.select(0.05)
            self.rounds += 1
            for peer in self.gate.admit(key.fileobj for key, _ in events if key.data is self.gate):
                peer.socket.sendall(peer.keys.sealer().seal(b"welcome"))
                peer.socket.close()
            self.most_open = max(self.most_open, len(self.selector.get_map()))
        self.gate.close()
        assert not self.selector.get_map()

    def join(self, seconds: float = 60) -> None:
        with socket.create_connection(self.address, timeout=seconds) as connection:
            keys = handshake.prove(connection, KEY, "control", time.monotonic() + seconds)
            connection.settimeout(seconds)
            assert list(keys.opener().feed(connection.recv(1024))) == [b"welcome"]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.over = True
    server.thread.join()


@pytest.fixture
def crowd(server: Server) -> Iterator[list[socket.socket]]:
    """Idle connections: three times as many as the gate holds."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(server.address, 60)) for _ in range(3 * gates.MOST)
        ]


def test_a_peer_gets_in_past_a_crowd(server: Server, crowd: list[socket.socket]) -> None:
    server.join()
    assert server.most_open <= gates.MOST + 2


def test_each_connection_has_little_time_and_little_memory(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "SECONDS", 0.5)
    began = time.monotonic()
    with socket.create_connection(server.address, 60) as connection:
        connection.sendall(handshake.MAGIC)
        assert connection.recv(1) == b""
    assert 0.4 < time.monotonic() - began < 60
    with socket.create_connection(server.address, 60) as connection, pytest.raises(OSError):
        while True:
            connection.sendall(b"x" * 65536)  # refused at its first bytes
    assert server.gate.refused == 2


def test_a_crowd_from_one_address_displaces_only_itself(server: Server, crowd: list[socket.socket]) -> None:
    with socket.create_connection(server.address, 60, source_address=("127.0.0.2", 0)) as slow:
        slow.sendall(handshake.MAGIC)
        others = [socket.create_connection(server.address, 60) for _ in range(gates.MOST)]
        time.sleep(0.5)
        slow.settimeout(0.1)
        with pytest.raises(TimeoutError):
            slow.recv(1)  # it is still connected
    for other in others:
        other.close()


@contextlib.contextmanager
def no_free_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = [os.dup(0)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for filler in fillers:
            os.close(filler)


def test_a_peer_gets_in_when_descriptors_have_run_out(server: Server, crowd: list[socket.socket]) -> None:
    """And the server does not spin meanwhile."""
    server.join()
    with socket.socket() as client:
        client.settimeout(60)
        with no_free_descriptors():
            before, began = server.rounds, time.monotonic()
            client.connect(server.address)
            handshake.prove(client, KEY, "control", time.monotonic() + 60)
            assert server.rounds - before < 100 + 100 * (time.monotonic() - began)


def test_a_server_without_descriptors_rests(server: Server) -> None:
    with socket.socket() as client:
        with no_free_descriptors():
            client.connect(server.address)
            before, began = server.rounds, time.monotonic()
            time.sleep(0.5)
            assert server.rounds - before < 100 * (time.monotonic() - began)
        client.settimeout(60)
        handshake.prove(client, KEY, "control", time.monotonic() + 60)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("10.0.0.1", 1), ("10.0.0.1", 2), True),
        (("10.0.0.1", 1), ("10.0.0.2", 1), False),
        (("::ffff:10.0.0.1", 1, 0, 0), ("::ffff:10.0.0.2", 1, 0, 0), False),
        (("fd00::1", 1, 0, 0), ("fd00::2:3", 1, 0, 0), True),
        (("fe80::1%eth0", 1, 0, 2), ("fe80::2", 1, 0, 2), True),
        (("fd00:0:0:1::1", 1, 0, 0), ("fd00:0:0:2::1", 1, 0, 0), False),
    ],
)
def test_a_network_of_ipv6_counts_as_one_address(one: object, other: object, same: bool) -> None:
    assert (gates.source_of(one) == gates.source_of(other)) is same
