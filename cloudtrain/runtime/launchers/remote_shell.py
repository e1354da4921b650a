"""The remote shell that mpirun calls instead of ssh.

    python .../cloudtrain/runtime/launchers/remote_shell.py RUN_FOLDER [options] NODE COMMAND...

Sends the command, through the leader, to the runtime of the node's host, which starts it, watches it and reports its
end. Like ssh, this program runs until mpirun ends.
"""

from __future__ import annotations

import json
import socket
import sys
import time

from cloudtrain.link.handshake import ENCRYPTED, is_loopback, prove
from cloudtrain.runtime.parent_death import die_with_runtime
from cloudtrain.runtime.run_folder import spawn_address_path

NOT_STARTED = 255
"""The exit code of ssh if it cannot run the command."""

PROVE_SECONDS = 30.0


def main(run: str, arguments: list[str]) -> int:
    """Raises OSError if the leader has ended, and PlatformError if a different process answers at its address."""
    die_with_runtime()
    while arguments[0].startswith("-"):
        del arguments[0]
    node, *command = arguments
    host_rank = int(node.rpartition("-")[2])
    with open(spawn_address_path(run)) as file:
        address, key, certificate = file.read().split(" ")
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        encrypted = not is_loopback(connection.getpeername()[0])
        purpose = f"spawn{ENCRYPTED}" if encrypted else "spawn"
        keys = prove(connection, bytes.fromhex(key), purpose, time.monotonic() + PROVE_SECONDS)
        if encrypted:
            from cloudtrain.link.tls import wrap_client

            connection = wrap_client(connection, bytes.fromhex(certificate))
        message = {"type": "spawn", "host_rank": host_rank, "command": " ".join(command)}
        connection.sendall(keys.sealer().seal(json.dumps(message).encode()))
        connection.recv(1)  # the leader sends nothing and closes the connection at the end
    return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
