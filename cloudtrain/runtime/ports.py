"""Ports for the servers of a job, which no other job on this machine gets."""

from __future__ import annotations

import contextlib
import os
import socket

from cloudtrain._system.sockets import ABSTRACT_NAMES

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

    The claim is a name of Linux's abstract Unix sockets. These names belong to a network namespace, as ports do, and
    vanish with their process. Other systems do not have them: there, every port can be claimed.
    """
    if not ABSTRACT_NAMES:
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0cloudtrain-port-{port}")
    except OSError:
        claim.close()
        return False
    _held.append(claim)
    return True
