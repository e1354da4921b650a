"""A supervisor that starts before its job, to load its modules while the client packs and renders.

The supervisor's standard input is a socket, through which the client sends the folder, the environment, and the
descriptors of the lock and the log. The supervisor acknowledges the job before it starts it. If the client disconnects
without sending a job, the supervisor ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cloudtrain._system.descriptors import receive_descriptors, send_descriptors

_SIZE = 8
"""The size, in bytes, of the length that precedes a message."""

PATIENCE = 60.0
"""Seconds after which a supervisor without a job ends."""

ACKNOWLEDGED = b"+"
ACKNOWLEDGE_SECONDS = 10.0
"""How long the client waits for the acknowledgement, in which the supervisor loads the rest of its modules."""

_RUN_MODULE = "import sys; del sys.path[0]; import runpy; runpy.run_module(sys.argv[1], run_name='__main__')"
"""As ``python -m``, but without the working folder on the path, where any file could shadow a module."""


@dataclass
class IdleSupervisor:
    """The client's side."""

    channel: socket.socket
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, module: str, environ: Mapping[str, str]) -> IdleSupervisor | None:
        """Start ``module`` as a program. None if that fails; the job's supervisor then starts later."""
        client, supervisor = socket.socketpair()
        with supervisor:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", _RUN_MODULE, module],
                    env=environ,
                    cwd="/",
                    stdin=supervisor.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                client.close()
                return None
        return cls(client, process)

    def take(self, folder: Path, environ: Mapping[str, str], lock: int, log: int) -> bool:
        """Send the job in ``folder`` and its lock. False if the supervisor does not accept it; it is dead then."""
        message = json.dumps({"folder": str(folder), "environ": dict(environ)}).encode()
        with self.channel, contextlib.suppress(OSError):
            self.channel.settimeout(ACKNOWLEDGE_SECONDS)
            send_descriptors(self.channel, len(message).to_bytes(_SIZE, "big"), [lock, log])
            self.channel.sendall(message)
            if self.channel.recv(1) == ACKNOWLEDGED:
                return True
        # It may be paused and hold the lock: two supervisors must never run one job.
        self.process.kill()
        self.process.wait()
        return False


def wait_for_job() -> tuple[Path, int] | None:
    """The supervisor's side: the folder and the lock of its job; None if the client disconnected.

    Also sets the environment, the working folder and the output of this process to those that the client sent.
    """
    with socket.socket(fileno=os.dup(0)) as channel:
        channel.settimeout(PATIENCE)
        try:
            size, descriptors = receive_descriptors(channel, _SIZE, 2)
        except TimeoutError:
            return None
        if not size:
            return None
        data = b""
        while len(data) < int.from_bytes(size, "big"):
            part = channel.recv(1 << 16)
            if not part:
                return None
            data += part
        try:
            channel.sendall(ACKNOWLEDGED)
        except OSError:  # the client no longer waits
            return None
    message, (lock, log) = json.loads(data), descriptors
    os.environ.clear()
    os.environ.update(message["environ"])
    os.chdir(message["folder"])
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)
    return Path(message["folder"]), lock
