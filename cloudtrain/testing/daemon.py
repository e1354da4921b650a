"""One background S3 server per user: ``cloudtrain s3 start``.

Its state is in the folder ``s3`` of the user's state folder:

- ``server.json``: endpoint, keys and data folder of the running server, or of the one that ran last;
- ``alive``: contains the server's process id; the server holds a lock on it as long as it lives;
- ``starting``: locked by the process that starts or stops the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cloudtrain._system.files import lock
from cloudtrain._system.processes import RUNS_JOBS, USE_WSL
from cloudtrain._system.signals import SIGKILL
from cloudtrain.errors import StorageError, Unreachable
from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_private
from cloudtrain.testing._account import S3Account
from cloudtrain.testing._weed import STOP_TIMEOUT, is_free, launch, remove_sockets

ANSWER_TIMEOUT = 10.0
"""Seconds that a running server may take to respond."""


@dataclass(frozen=True)
class S3Daemon:
    """The S3 server of this user."""

    account: S3Account
    data: Path
    """The folder with the objects."""
    ports: tuple[int, ...]
    pid: int


def start_s3(data: Path | None = None, *, port: int = 0) -> tuple[S3Daemon, bool]:
    """Start the server unless it is running. Returns the server, and whether this call started it.

    The server keeps its keys from one start to the next. By default, it also keeps its data folder and, if free, its
    port.

    Raises:
        StorageError: the server cannot be started.
        Unreachable: the server runs but does not respond.
    """
    folder = _folder()
    with _locked(folder / "starting"):
        found = running_s3()
        if found is not None:
            return found, False
        last = _load(folder)
        if last is not None:
            remove_sockets(last.ports)
            data = data or last.data
            port = port or (last.ports[0] if is_free(last.ports[0]) else 0)
        data = (data or folder / "data").absolute()
        keys = last.account if last else S3Account.generate()
        with _locked(folder / "alive") as alive:
            weed = launch(folder, data, keys, port=port, alive=alive)
            daemon = S3Daemon(weed.account, data, tuple(weed.ports), weed.process.pid)
            try:
                _save(folder, daemon)
            except BaseException:
                weed.stop()
                raise
        return daemon, True


def stop_s3() -> bool:
    """Stop the server. Returns False if it was not running. The server keeps its data and keys."""
    folder = _folder()
    with _locked(folder / "starting"):
        pid = _living(folder)
        if pid is None:
            return False
        if not pid:
            raise StorageError(
                "the S3 server runs, but its start was interrupted", hint="Kill the process named weed."
            )
        os.kill(pid, signal.SIGTERM)
        if not _wait_for_end(folder, STOP_TIMEOUT):
            os.kill(pid, SIGKILL)
            _wait_for_end(folder, STOP_TIMEOUT)
        last = _load(folder)
        if last is not None:
            remove_sockets(last.ports)
        return True


def running_s3() -> S3Daemon | None:
    """The server, if it is running. Raises Unreachable if it does not respond."""
    folder = _folder()
    deadline = time.monotonic() + ANSWER_TIMEOUT
    while True:
        pid = _living(folder)
        if pid is None:
            return None
        found = _load(folder)
        if found is not None and found.pid == pid and found.account.answers():
            return found
        if time.monotonic() > deadline:
            hint = "Run: cloudtrain s3 stop"
            raise Unreachable(f"the S3 server (process {pid}) does not respond", hint=hint)
        time.sleep(0.1)


def _folder() -> Path:
    if not RUNS_JOBS:
        raise StorageError("the embedded S3 server does not run on Windows", hint=USE_WSL)
    folder = state_home() / "s3"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Lock the file, and yield its descriptor. A child process that inherits the descriptor keeps the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _living(folder: Path) -> int | None:
    """The process id of the server if it is running; 0 while it is being started.

    Raises StorageError if it is running on another host that shares the folder.
    """
    try:
        descriptor = os.open(folder / "alive", os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        if lock(descriptor, wait=False, shared=True):
            return None
        pid, _, host = os.read(descriptor, 1000).decode().partition(" ")
    finally:
        os.close(descriptor)
    if host not in ("", socket.gethostname()):
        raise StorageError(
            f"the S3 server runs on another host, {host}", hint="Run cloudtrain s3 stop on that host."
        )
    return int(pid or 0)


def _wait_for_end(folder: Path, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while _living(folder) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _save(folder: Path, daemon: S3Daemon) -> None:
    write_private(folder / "server.json", json.dumps({**asdict(daemon), "data": str(daemon.data)}))


def _load(folder: Path) -> S3Daemon | None:
    try:
        state = json.loads((folder / "server.json").read_text(encoding="utf-8"))
        account = S3Account(**state["account"])
        return S3Daemon(account, Path(state["data"]), tuple(state["ports"]), int(state["pid"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{folder / 'server.json'} is damaged", hint="Remove it.") from error
