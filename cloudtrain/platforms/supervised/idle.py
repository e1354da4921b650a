"""A supervisor that starts before its job, to load its modules while the client packs and renders.

The supervisor's standard input is a socket, through which the client sends the folder, the environment, and the
descriptors of the lock and the log. The supervisor gives the folder the name of the job, and acknowledges that before
it starts the job. If the client disconnects without sending a job, the supervisor ends. Thus, whichever of them is
killed, there is either a job with a supervisor or no job.

Where a process may fork, the supervisor continues in a child process, because the client would have to wait for its
own child.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain._system.descriptors import receive_descriptors, send_descriptors
from cloudtrain._system.processes import FORKS_SAFELY, fork, signal_group
from cloudtrain._system.signals import ENDING, SIGKILL, block
from cloudtrain.platforms.supervised.early import start_process, started_early
from cloudtrain.storage.atomic import publish

_SIZE = 8
"""The size, in bytes, of the length that precedes a message."""

PATIENCE = 60.0
"""Seconds after which a supervisor without a job ends."""

ACKNOWLEDGED, REFUSED = b"+", b"-"
ACKNOWLEDGE_SECONDS = 10.0
"""How long the client waits for the acknowledgement, while the supervisor loads the rest of its modules."""
START_SECONDS = 60.0
"""`ACKNOWLEDGE_SECONDS` for a supervisor that has just been started."""


@dataclass
class IdleSupervisor:
    """The client's side."""

    channel: socket.socket
    process: subprocess.Popen[bytes]
    has_job: bool = False

    @classmethod
    def start(
        cls, module: str, environ: Mapping[str, str], errors: int = subprocess.DEVNULL
    ) -> IdleSupervisor | None:
        """Start ``module``, or take the process that was started early. None if that fails.

        Args:
            errors: the descriptor for its error output if it does not start.
        """
        started = started_early(module) if errors == subprocess.DEVNULL else None
        started = started or start_process(module, environ, errors)
        return cls(*started) if started else None

    def take(
        self, draft: Path, target: Path, environ: Mapping[str, str], lock: int, log: int, seconds: float
    ) -> bool:
        """Send the job in ``draft``, and its lock. False if the supervisor does not accept it, and was ended.

        Args:
            target: the folder's final name.
            seconds: how long to wait for the answer.

        Raises:
            FileExistsError: ``target`` exists.
            OSError: the folder cannot be renamed.
        """
        # an earlier supervisor may have renamed the folder, and died before it reported that
        folder = draft if draft.exists() else target
        message = json.dumps(
            {"folder": str(folder), "target": str(target), "environ": dict(environ)}
        ).encode()
        answer = b""
        with self.channel, contextlib.suppress(OSError):
            self.channel.settimeout(seconds)
            send_descriptors(self.channel, len(message).to_bytes(_SIZE, "big"), [lock, log])
            self.channel.sendall(message)
            answer = self.channel.recv(16)
        if answer == ACKNOWLEDGED:
            self.has_job = True
            if FORKS_SAFELY:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(seconds)  # it continues in its child
            return True
        self.close()
        if answer.startswith(REFUSED):
            number = int(answer[1:])
            raise OSError(number, os.strerror(number), str(target))
        return False

    def close(self) -> None:
        """End a supervisor without a job, which may be paused and hold a lock: two supervisors must never run one job.

        If it accepted the job too late, its child is ended too.
        """
        self.channel.close()
        if self.process.returncode is None:  # otherwise, its pid may have been reused
            with contextlib.suppress(OSError):
                signal_group(self.process.pid, SIGKILL)
        self.process.kill()
        self.process.wait()

    def __del__(self) -> None:
        if self.process.returncode is None and not self.has_job:
            self.close()


def wait_for_job() -> tuple[Path, int] | None:
    """The supervisor's side: the folder and the lock of its job; None if the client disconnected.

    Publishes the folder. Also sets the environment, the working folder and the output of this process to those that the
    client sent.
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
        message = json.loads(data)
        try:
            block(ENDING)  # until the supervisor has installed its handlers: from here on, the job exists
            publish(Path(message["folder"]), Path(message["target"]))
        except OSError as error:
            with contextlib.suppress(OSError):  # the client may be gone: another one has submitted the job
                channel.sendall(REFUSED + str(error.errno).encode())
            return None
        with contextlib.suppress(OSError):  # the client may be gone: the job runs nevertheless
            channel.sendall(ACKNOWLEDGED)
    if FORKS_SAFELY and fork():
        os._exit(0)
    lock, log = descriptors
    os.environ.clear()
    os.environ.update(message["environ"])
    os.chdir(message["target"])
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)
    return Path(message["target"]), lock
