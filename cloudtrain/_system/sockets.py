"""Sockets: their folder on this system, how to listen, and how to wait for input."""

from __future__ import annotations

import errno
import select
import socket
import sys
from typing import Callable

RUN_FOLDER = "var/run" if sys.platform == "darwin" else "run"
"""The folder of the sockets of services, below the root. On Linux, ``var/run`` is a link to it."""

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""The network interface over which processes of this machine reach each other."""

ENGINE_PIPE = "npipe:////./pipe/docker_engine" if sys.platform == "win32" else ""
"""The address of a container engine that does not listen on a Unix socket."""


def plain(host: str) -> str | bytes:
    """The name of a host for `socket.getaddrinfo`, as bytes if it is ASCII.

    For text, Python loads the codec for international names and the Unicode tables, which takes a millisecond.
    """
    return host.encode() if host.isascii() else host


def create_server(address: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens at a name, or an IPv4 or IPv6 address; if ``address`` is empty, at all addresses of both.

    For a name that has addresses of both, it listens with IPv4: clients try every address of a name.

    Raises:
        OSError: the port is in use, or this machine does not have the address.
    """
    if address:
        found = socket.getaddrinfo(plain(address), port, type=socket.SOCK_STREAM)
        family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        return socket.create_server((str(place[0]), port), family=family, backlog=backlog)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return socket.create_server(("", port), backlog=backlog)


if sys.platform == "linux":

    def claim(name: str) -> socket.socket:
        """A socket that holds ``name`` until it is closed or the process ends. Raises OSError if the name is taken.

        The name is one of Linux's abstract Unix sockets, which belong to a network namespace, as ports do.
        """
        claimed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claimed.bind(f"\0{name}")
        except BaseException:
            claimed.close()
            raise
        return claimed

else:

    def claim(name: str) -> socket.socket:
        """Other systems have no abstract names: every claim succeeds."""
        return socket.socket()


if sys.platform == "win32":

    def connect_unix(path: str, timeout: float) -> socket.socket:
        """Python on Windows has no Unix sockets. Raises OSError."""
        raise OSError(errno.EAFNOSUPPORT, "this system has no Unix sockets")

    def input_waiter(connection: socket.socket) -> Callable[[float], bool]:
        """A function that waits for input for some seconds, and returns whether there is input or the end of it."""
        return lambda seconds: bool(select.select([connection], [], [], seconds)[0])

else:

    def connect_unix(path: str, timeout: float) -> socket.socket:
        """A connection to the Unix socket at ``path``. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout)
            connection.connect(path)
        except BaseException:
            connection.close()
            raise
        return connection

    def input_waiter(connection: socket.socket) -> Callable[[float], bool]:
        """A function that waits for input for some seconds, and returns whether there is input or the end of it."""
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return lambda seconds: bool(poll.poll(seconds * 1000))
