"""A relay in front of a server on this machine that counts the bytes that clients send."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

CHUNK = 1 << 18


class CountingRelay(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, upstream: str) -> None:
        """``upstream`` is a URL."""
        super().__init__(("127.0.0.1", 0), _Connection)
        parts = urlsplit(upstream)
        self.upstream = parts.hostname, parts.port
        self.url = "http://127.0.0.1:{1}".format(*self.server_address)
        self.sent = 0
        """The bytes of all requests, including headers."""


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, CountingRelay)
        with contextlib.suppress(OSError), socket.create_connection(self.server.upstream) as server:
            threading.Thread(target=_pass_on, args=(server, self.request), daemon=True).start()
            for data in _received(self.request):
                self.server.sent += len(data)
                server.sendall(data)


def _pass_on(server: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for data in _received(server):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)


def _received(connection: socket.socket) -> Iterator[bytes]:
    while data := connection.recv(CHUNK):
        yield data


@contextlib.contextmanager
def counting_relay(variable: str) -> Iterator[CountingRelay]:
    """Run a relay in front of the server whose URL is in this environment variable, and set the variable to the relay's
    URL meanwhile."""
    upstream = os.environ[variable]
    with CountingRelay(upstream) as relay:
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        os.environ[variable] = relay.url
        try:
            yield relay
        finally:
            os.environ[variable] = upstream
            relay.shutdown()
