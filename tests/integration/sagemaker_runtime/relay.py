"""Relays TCP connections between two addresses. One may be a Unix socket, which leads into a network namespace.

python relay.py LISTEN CONNECT     each is host:port, or the path of a Unix socket
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading


def listen(address: str) -> socket.socket:
    if "/" in address:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        return listener
    host, _, port = address.rpartition(":")
    return socket.create_server((host, int(port)))


def connect(address: str) -> socket.socket:
    if "/" in address:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def relay(listener: socket.socket, address: str) -> None:
    """Relay connections until the listener is closed."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        far = connect(address)
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    relay(listen(sys.argv[1]), sys.argv[2])
