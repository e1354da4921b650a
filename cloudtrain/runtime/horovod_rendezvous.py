"""Horovod's rendezvous server for the ranks of one job. Runs in the script's interpreter:

    python -m cloudtrain.runtime.horovod_rendezvous HOST:RANKS,HOST:RANKS DESCRIPTOR

Writes its port to the descriptor, and serves until its parent ends.
"""

from __future__ import annotations

import os
import signal
import sys

from cloudtrain.runtime.parent_death import die_with_runtime

assert sys.platform != "win32", "jobs run on Linux and macOS"


def main(hosts: str, descriptor: int) -> None:
    die_with_runtime()
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts  # type: ignore[import-not-found]
    from horovod.runner.http.http_server import RendezvousServer  # type: ignore[import-not-found]

    parsed = parse_hosts(hosts)
    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(parsed, sum(host.slots for host in parsed)))
    # discard its messages about ranks that have ended
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    with open(descriptor, "w") as answer:
        answer.write(str(port))
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
