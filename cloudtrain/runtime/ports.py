"""Ports for the servers of a job that no other job of this user on this machine gets."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
from functools import cache

from cloudtrain._system.files import read_regular
from cloudtrain._system.owned import FolderIsOpen
from cloudtrain._system.sockets import claim
from cloudtrain._system.users import folder_of_user

FIRST_PORT, PORT_COUNT = 20000, 12768
"""The range of ports to choose from. Linux uses ports from 32768 on for outgoing connections, so lower ports tend to
stay free. Ray's workers use those from 10002 to 19999."""
TRIES = 100
"""After this number of tries, nearly all of these ports must be taken, so the kernel chooses a port."""
KEY_FILE, KEY_BYTES = "ports-key", 32

_held: list[socket.socket] = []
"""The sockets that hold the ports of this process, until it ends."""


def free_port() -> int:
    """Choose a free port that no other job of this user on this machine chooses while this process runs.

    Before a rank listens on it, another program may take the port by chance, but cannot find out which one it is.
    Raises OSError if no port is free.
    """
    for _ in range(TRIES):
        port = FIRST_PORT + int.from_bytes(os.urandom(2), "big") % PORT_COUNT
        with contextlib.suppress(OSError):
            if _is_free(port) and hold(port):
                return port
    port = _is_free(0)
    hold(port)
    return port


def hold(port: int) -> bool:
    """Claim a port for this process; returns False if another job has claimed it.

    On systems other than Linux, every port can be claimed.
    """
    try:
        _held.append(claim(f"cloudtrain-port-{_name(port)}"))
    except OSError:
        return False
    return True


def _is_free(port: int) -> int:
    """Return ``port``, or a port that the kernel chooses if it is 0. Raises OSError if the port is taken."""
    with socket.socket() as probe:
        probe.bind(("", port))
        bound: int = probe.getsockname()[1]
        return bound


def _name(port: int) -> str:
    """The name of a port in the list of sockets. It hides the number, because all users can read the list, and another
    user could end the job by taking the port before a rank listens there."""
    return hmac.new(_key(), str(port).encode(), hashlib.sha256).hexdigest()[:32]


@cache
def _key() -> bytes:
    """The secret of all processes of this user on this machine; of this process only if it cannot be stored."""
    fresh = os.urandom(KEY_BYTES)
    try:
        path = folder_of_user() / KEY_FILE
        if not path.exists():
            unfinished = path.with_name(f"{KEY_FILE}-{os.urandom(8).hex()}")
            try:
                with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(fresh)
                with contextlib.suppress(FileExistsError):
                    os.link(unfinished, path)  # another process may be faster
            finally:  # also on a full disk, or a file system without hard links
                unfinished.unlink(missing_ok=True)
        return read_regular(path, KEY_BYTES) or fresh
    except (OSError, FolderIsOpen):
        return fresh
