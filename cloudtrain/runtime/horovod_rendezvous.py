"""Horovod's own rendezvous server, for the ranks of one job. Runs in the job's Python:

    python -m cloudtrain.runtime.horovod_rendezvous HOST:RANKS,HOST:RANKS

It prints its port, and serves until its parent ends.
"""

from __future__ import annotations

import os
import signal
import sys

from cloudtrain.runtime.rank import die_with_parent


def main(hosts: str) -> None:
    die_with_parent()
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    parsed = parse_hosts(hosts)
    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(parsed, sum(host.slots for host in parsed)))
    print(port, flush=True)  # noqa: T201
    # what it says of ranks that went away is nobody's concern
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
