"""Horovod's rendezvous server for the ranks of one job. Runs in the script's interpreter:

    python -m cloudtrain.runtime.launchers.horovod_rendezvous HOST:RANKS,HOST:RANKS LOOPBACK DESCRIPTOR

Listens on 127.0.0.1 if LOOPBACK is 1, else on all interfaces. Writes its port to the descriptor, and serves until its
parent ends. Horovod's ranks cannot authenticate, so the server accepts requests only from addresses of the job's hosts.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from cloudtrain.runtime.parent_death import die_with_runtime

assert sys.platform != "win32", "jobs run on Linux and macOS"

LOOK_UP_SECONDS = 0.2
"""The shortest time between two lookups of the hosts' addresses. A refused rank tries again after 0.5 s."""


def addresses(hosts: Iterable[str]) -> set[str]:
    """The addresses of the hosts, and the loopback addresses, because ranks of this host may use them to connect."""
    found = {"127.0.0.1", "127.0.1.1"}
    for host in hosts:
        try:
            found.update(str(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET))
        except OSError:
            continue  # the host is not up yet: a later lookup finds it
    return found


def main(hosts: str, loopback: bool, descriptor: int) -> None:
    die_with_runtime()
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts  # type: ignore[import-not-found]
    from horovod.runner.http.http_server import (  # type: ignore[import-not-found]
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    parsed = parse_hosts(hosts)
    known: set[str] = set()
    looked_up = -LOOK_UP_SECONDS

    class Server(RendezvousHTTPServer):  # type: ignore[misc]
        daemon_threads = True

        def verify_request(self, request: Any, client_address: tuple[str, int]) -> bool:
            nonlocal looked_up
            if client_address[0] not in known and time.monotonic() - looked_up > LOOK_UP_SECONDS:
                looked_up = time.monotonic()
                known.update(addresses(host.hostname for host in parsed))
            return client_address[0] in known

    server = Server(("127.0.0.1" if loopback else "", 0), RendezvousHandler, 0)
    server.init(get_host_assignments(parsed, sum(host.slots for host in parsed)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # discard the server's messages about ranks that have ended
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    with open(descriptor, "w") as answer:
        answer.write(str(server.server_address[1]))
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1", int(sys.argv[3]))
