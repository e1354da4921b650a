"""Sockets: where this system keeps them, and how to wait for their input."""

from __future__ import annotations

import errno
import select
import socket
import sys
from typing import Callable

RUN_FOLDER = "var/run" if sys.platform == "darwin" else "run"
"""The folder of the sockets of services, below the root. On Linux, the other name is a link to it."""

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""The network interface over which processes of this machine reach each other."""

ENGINE_PIPE = "npipe:////./pipe/docker_engine" if sys.platform == "win32" else ""
"""The address of a container engine that does not listen on a Unix socket."""

if sys.platform == "win32":

    def connect_unix(path: str, timeout: float) -> socket.socket:
        """Python on Windows has no Unix sockets. Raises OSError."""
        raise OSError(errno.EAFNOSUPPORT, "this system has no Unix sockets")

    def input_waiter(connection: socket.socket) -> Callable[[float], bool]:
        """A function that waits for input for some seconds, and returns whether there is any, or the end of it."""
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
        """A function that waits for input for some seconds, and returns whether there is any, or the end of it."""
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return lambda seconds: bool(poll.poll(seconds * 1000))
