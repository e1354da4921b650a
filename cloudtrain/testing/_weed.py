"""Runs SeaweedFS's ``weed mini`` as a child process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudtrain.errors import StorageError
from cloudtrain.storage.errors import file_errors
from cloudtrain.testing._account import S3Account
from cloudtrain.testing._weed_options import (
    HOST,
    command,
    environment,
    find_weed,
    pick_ports,
    remove_sockets,
    write_config,
)

START_TIMEOUT = 30.0
"""Seconds that the server has to respond. It usually takes about one."""
START_ATTEMPTS = 3
"""Each attempt uses other ports: another process may take one between the choice and the start."""
STOP_TIMEOUT = 10.0
"""Seconds from SIGTERM to SIGKILL."""


@dataclass(frozen=True)
class Weed:
    """A server that runs as a child process."""

    process: subprocess.Popen[bytes]
    account: S3Account
    ports: Sequence[int]

    def stop(self, grace: float = STOP_TIMEOUT) -> None:
        """Stop the server with SIGTERM, and after ``grace`` seconds with SIGKILL."""
        if grace:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        self.process.kill()
        self.process.wait()
        remove_sockets(self.ports)


def launch(folder: Path, data: Path, keys: S3Account, *, port: int = 0, alive: int | None = None) -> Weed:
    """Start a server for the objects in ``data``, and wait until it responds to a signed request.

    Its configuration and log are written to ``folder``. The server inherits the file descriptor ``alive``, and its
    process id and host are written to that file.

    Raises:
        StorageError: SeaweedFS is not installed, ``port`` is in use, or the server does not start. No process is
            left running.
    """
    executable = find_weed()
    config, log = folder / "weed-s3.json", folder / "weed.log"
    with file_errors(str(folder)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_config(config, keys)
    for _ in range(START_ATTEMPTS):
        ports = pick_ports(port)
        account = replace(keys, endpoint=f"http://{HOST}:{ports[0]}")
        if alive is not None:
            os.ftruncate(alive, 0)
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command(executable, data, config, ports),
                env={**os.environ, **environment()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=() if alive is None else (alive,),
            )
        weed = Weed(process, account, ports)
        try:
            if alive is not None:
                os.lseek(alive, 0, os.SEEK_SET)
                os.write(alive, f"{process.pid} {socket.gethostname()}".encode())
            if _responds(weed):
                return weed
        except BaseException:
            weed.stop(grace=0)
            raise
        weed.stop(grace=0)
    raise StorageError(f"the S3 server did not start with the data in {data}: {_last_error(log)}")


def _responds(weed: Weed) -> bool:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and weed.process.poll() is None:
        if weed.account.answers():
            return True
        time.sleep(0.05)
    return False


def _last_error(log: Path) -> str:
    """The line of the log with the fatal error, which begins with F (glog); otherwise the last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or ["its log is empty"]
    fatal = [line for line in lines if line.startswith("F")]
    return (fatal or lines)[-1]
