"""Rendezvous: every rank finds rank 0's address, and connects its `NegotiationClient` to the coordinator there."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Protocol

from cloudtrain._system.users import owns, user_id
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.connection import CoordinatorConnection
from cloudtrain.distributed.negotiation.coordinator import Coordinator
from cloudtrain.distributed.negotiation.matcher import Combine
from cloudtrain.distributed.world import World

STORE_KEY = "cloudtrain/control"


class Store(Protocol):
    """The methods of ``torch.distributed`` stores that are needed here."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...


def connect(
    client: NegotiationClient,
    store: Store,
    rank: int,
    size: int,
    address: str,
    combine: Combine,
    *,
    start_timeout: float,
    timeout: float,
    warn_after: float,
) -> None:
    """Connect ``client`` to the coordinator. All ranks call it.

    Args:
        store: shared by all ranks.
        address: the address of rank 0's host for the other ranks.
        start_timeout: seconds to wait for the connection.

    Raises:
        CollectiveError: rank 0 is unreachable.
    """
    callbacks: dict[str, Callable[..., Any]] = {
        "deliver": client.deliver,
        "lose": client.lose,
        "position": client.sequence_numbers.position,
    }
    if rank == 0:
        listener = _listen(address, size)
        token = os.urandom(16).hex()
        client.channel = Coordinator(
            listener, token, size, combine, timeout=timeout, warn_after=warn_after, **callbacks
        )
        store.set(STORE_KEY, json.dumps([address, listener.getsockname()[1], token]))
        return
    host, port, token = json.loads(store.get(STORE_KEY))
    try:
        client.channel = CoordinatorConnection((host, port), token, rank, timeout=start_timeout, **callbacks)
    except OSError as error:
        raise CollectiveError(
            f"rank {rank} could not reach rank 0 at {host}:{port}: {error}",
            hint="Open the hosts' TCP ports to each other: rank 0 listens on a port of its choice.",
        ) from error


def _listen(address: str, size: int) -> socket.socket:
    """Listen on ``address`` if this host has it; behind address translation, on all addresses."""
    try:
        return socket.create_server((address, 0), backlog=size)
    except OSError:
        return socket.create_server(("", 0), backlog=size)


def find_master(world: World, timeout: float, environ: Mapping[str, str] = os.environ) -> World:
    """``world`` with the master address and port. If the launcher set no port, rank 0 chooses one, and the other
    ranks of the host read it from the rendezvous file.

    Raises:
        CollectiveError: rank 0 wrote no port within ``timeout`` seconds, or another user owns the folder.
    """
    if world.size == 1 or (world.master_addr and world.master_port):
        return world
    address = world.master_addr or "127.0.0.1"
    path = _rendezvous_file(environ)
    if world.rank == 0:
        from cloudtrain.storage.atomic import replace_file  # few ranks need it

        port = _free_port(address)
        replace_file(path, f"{port}".encode())
        atexit.register(_remove, path)
        return replace(world, master_addr=address, master_port=port)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):
            return replace(world, master_addr=address, master_port=int(path.read_text()))
        time.sleep(0.01)
    raise CollectiveError(
        f"rank {world.rank} of {world.size}: rank 0 did not publish its port within {timeout:g} s",
        hint="Set MASTER_ADDR and MASTER_PORT for all ranks (mpirun: -x MASTER_ADDR -x MASTER_PORT).",
    )


def _rendezvous_file(environ: Mapping[str, str]) -> Path:
    """The rendezvous file: in mpirun's session directory, or else in a folder of this user, named after the parent."""
    session = environ.get("PMIX_SERVER_TMPDIR")
    if session and os.path.isdir(session):
        return Path(session, "cloudtrain-master")
    folder = Path(tempfile.gettempdir(), f"cloudtrain-{user_id()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or not owns(status):
        raise CollectiveError(
            f"{folder} is not a folder of this user", hint="Set MASTER_ADDR and MASTER_PORT."
        )
    return folder / f"master-{os.getppid()}"


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
