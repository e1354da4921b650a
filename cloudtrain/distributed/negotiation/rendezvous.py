"""Rendezvous: every rank finds rank 0's address, and connects its `NegotiationClient` to the coordinator there."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Protocol

from cloudtrain._system.sockets import create_server
from cloudtrain.contract.rank import started_by_srun
from cloudtrain.distributed._objects import Objects
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation import step_master
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.connection import CoordinatorConnection
from cloudtrain.distributed.negotiation.coordinator import Coordinator
from cloudtrain.distributed.negotiation.matcher import Combine
from cloudtrain.distributed.negotiation.secret import find_secret, private_folder, session_key
from cloudtrain.distributed.negotiation.step_master import free_port
from cloudtrain.distributed.options import logger, warn_after
from cloudtrain.distributed.world import LOOPBACK, World
from cloudtrain.link.authentication import BACKLOG
from cloudtrain.link.handshake import NotAuthenticated
from cloudtrain.link.secret import RANKS_VARIABLE, fresh_secret, ranks_secret

STORE_KEY = "cloudtrain/control"
NO_SECRET = (
    f"the ranks are on several machines and have no common secret: anyone who can reach the ports of rank 0 can join "
    f"them. Set {RANKS_VARIABLE} to the same random text on all hosts"
)


class Store(Protocol):
    """The methods of ``torch.distributed`` stores that are needed here."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...


def connect(
    client: NegotiationClient,
    store: Store,
    world: World,
    combine: Combine,
    *,
    start_timeout: float,
    timeout: float,
) -> None:
    """Connect ``client`` to the coordinator. All ranks call it.

    The store has rank 0's address, and nothing that is secret: rank 0 and the other rank prove to each other that they
    know the secret of the ranks (`find_secret`). Only if ranks on several machines were not given one, rank 0 puts one
    into the store, and warns.

    Args:
        store: shared by all ranks.
        start_timeout: seconds to wait for the connection.

    Raises:
        CollectiveError: rank 0 is unreachable, or does not know the secret.
    """
    callbacks: dict[str, Callable[..., Any]] = {
        "deliver": client.deliver,
        "lose": client.lose,
        "position": client.position,
    }
    secret = ranks_secret(os.environ) or step_master.secret() or find_secret(world.on_one_machine)
    if world.rank == 0:
        host = world.master_addr or os.environ.get("MASTER_ADDR") or socket.gethostname()
        if world.on_one_machine:
            host = LOOPBACK
        listener = _listen(host)
        session, given = os.urandom(16).hex(), secret
        if not given:
            logger.warning("%s", NO_SECRET)
            secret = fresh_secret()
        client.objects = Objects(session_key(secret, "objects", session))
        key = session_key(secret, "ranks", session)
        client.channel = Coordinator(
            listener, key, world.size, combine, timeout=timeout, warn_after=warn_after(), **callbacks
        )
        store.set(STORE_KEY, json.dumps([host, listener.getsockname()[1], session, "" if given else secret]))
        return
    host, port, session, published = _read_address(store.get(STORE_KEY))
    where = f"rank {world.rank} could not join rank 0 at {host}:{port}"
    if bool(secret) == bool(published):
        have, lack = ("this rank", "rank 0") if secret else ("rank 0", "this rank")
        raise CollectiveError(
            f"{where}: {have} has a secret of the ranks, and {lack} has none",
            hint=f"Set {RANKS_VARIABLE} to the same random text on all hosts, or on none.",
        )
    secret = secret or published
    client.objects = Objects(session_key(secret, "objects", session))
    key = session_key(secret, "ranks", session)
    try:
        client.channel = CoordinatorConnection(
            (host, port), key, world.rank, timeout=start_timeout, **callbacks
        )
    except NotAuthenticated as error:
        raise CollectiveError(
            f"{where}: {error}",
            hint=f"Check what listens there, and that {RANKS_VARIABLE}, if set, is the same for all ranks.",
        ) from error
    except OSError as error:
        raise CollectiveError(
            f"{where}: {error}",
            hint="Open the hosts' TCP ports to each other: rank 0 listens on a port of its choice.",
        ) from error


def _read_address(published: bytes) -> tuple[str, int, str, str]:
    """The address that rank 0 put into the store. Raises CollectiveError for anything else."""
    try:
        host, port, session, secret = json.loads(published)
        return str(host), int(port), str(session), str(secret)
    except (ValueError, TypeError) as error:
        raise CollectiveError(
            f"the store of the job does not have the address of rank 0: {error}",
            hint="Check that all ranks run the same version of cloudtrain, and who else can reach the store.",
        ) from error


def _listen(address: str) -> socket.socket:
    """Listen on ``address`` if this host has it; behind address translation, on all addresses."""
    try:
        return create_server(address, 0, BACKLOG)
    except OSError:
        return create_server("", 0, BACKLOG)


def find_master(world: World, timeout: float, environ: Mapping[str, str] = os.environ) -> World:
    """``world`` with the master address and port. If the launcher set no port, rank 0 chooses one, and the other
    ranks of the host read it from the rendezvous file.

    Raises:
        CollectiveError: rank 0 wrote no port within ``timeout`` seconds, or another user owns the folder.
    """
    if world.size == 1 or (world.master_addr and world.master_port):
        return world
    if started_by_srun(environ):
        return step_master.find(world, timeout, environ)
    address = world.master_addr or LOOPBACK
    path = _rendezvous_file(environ)
    if world.rank == 0:
        from cloudtrain.storage.atomic import replace_file  # few ranks need it

        port = free_port(address)
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
    return private_folder() / f"master-{os.getppid()}"


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
