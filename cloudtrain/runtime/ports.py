"""Ports for the servers of a job, which no other job on this machine gets."""

from __future__ import annotations

import contextlib
import os
import socket

from cloudtrain._system.sockets import claim

FIRST_PORT, PORT_COUNT = 20000, 12768
"""Where ports are chosen. Linux uses ports from 32768 on for outgoing connections: those below tend to stay free. Ray's
workers have those from 10002 to 19999."""

_held: list[socket.socket] = []
"""The sockets that hold the ports of this process, until it ends."""


def free_port() -> int:
    """A port that is free now, and that no other job of cloudtrain on this machine chooses while this process runs.

    Between this call and the moment when a rank listens, another program may take it.
    """
    while True:
        port = FIRST_PORT + int.from_bytes(os.urandom(2), "big") % PORT_COUNT
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            if hold(port):
                return port


def hold(port: int) -> bool:
    """Claim a port for this process; returns False if another job has claimed it.

    On systems other than Linux, every port can be claimed.
    """
    try:
        _held.append(claim(f"cloudtrain-port-{port}"))
    except OSError:
        return False
    return True
