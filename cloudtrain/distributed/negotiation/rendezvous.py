"""Rendezvous: every rank finds rank 0's address, and connects its `NegotiationClient` to the coordinator there.

If the launcher does not set the address, rank 0 publishes it, with a fresh secret of the ranks, in a file that only its
user can read, and the other ranks wait for it. For ranks of one host the file is in mpirun's session directory, or else
in a folder of the user, named after the parent. For those of a Slurm step it is in the user's state folder, named after
the step's start, so that a requeued step, or a second program of the same step, does not find an earlier file. The file
is removed once all ranks have signed in.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from cloudtrain._system.memory import listen
from cloudtrain._system.sockets import create_server
from cloudtrain.contract.rank import started_by_srun
from cloudtrain.contract.slurm_step import step_id, step_key
from cloudtrain.distributed._objects import Objects
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.negotiation.connection import NAMED, Address, CoordinatorConnection
from cloudtrain.distributed.negotiation.coordinator import Coordinator
from cloudtrain.distributed.negotiation.matcher import Combine
from cloudtrain.distributed.negotiation.secret import (
    find_secret,
    private_folder,
    read_private,
    session_key,
)
from cloudtrain.distributed.options import logger, spin_seconds, warn_after
from cloudtrain.distributed.world import LOOPBACK, World
from cloudtrain.errors import StorageError
from cloudtrain.link.authentication import BACKLOG
from cloudtrain.link.handshake import NotAuthenticated
from cloudtrain.link.secret import RANKS_VARIABLE, fresh_secret, ranks_secret

STORE_KEY = "cloudtrain/control"
NO_SECRET = (
    f"the ranks are on several machines and have no common secret: anyone who can reach the ports of rank 0 can join "
    f"them. Set {RANKS_VARIABLE} to the same random text on all hosts"
)


STEPS_FOLDER = "steps"
"""The folder for these files, in the state folder."""
POLL_SECONDS = 0.02
DISCARD_PORT = 9
"""Nothing is sent to it: it only lets the kernel choose a route."""


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

    The store holds rank 0's address, and nothing secret: rank 0 and each other rank prove to each other that they have
    the secret of the ranks (`find_secret`). Only if ranks on several machines were given no secret, rank 0 puts one
    into the store, and warns.

    Args:
        store: shared by all ranks.
        start_timeout: seconds to wait for the connection.

    Raises:
        CollectiveError: rank 0 is unreachable, or does not have the secret.
    """
    spin = spin_seconds(world.local_size)
    secret = ranks_secret(os.environ) or published_secret() or find_secret(world.on_one_machine)
    if world.rank == 0:
        host = world.master_addr or os.environ.get("MASTER_ADDR") or socket.gethostname()
        session, given = os.urandom(16).hex(), secret
        listener, address = _listen_here(f"ranks-{session}") if world.on_one_machine else _listen(host)
        if not given:
            logger.warning("%s", NO_SECRET)
            secret = fresh_secret()
        client.objects = Objects(session_key(secret, "objects", session))
        key = session_key(secret, "ranks", session)
        client.channel = Coordinator(
            listener, key, world.size, combine, client, timeout=timeout, warn_after=warn_after(), spin=spin
        )
        store.set(STORE_KEY, json.dumps([*address, session, "" if given else secret]))
        return
    host, port, session, published = _read_address(store.get(STORE_KEY))
    place = f"at {host}:{port}" if port != NAMED else "on this machine"
    where = f"rank {world.rank} could not join rank 0 {place}"
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
            (host, port), key, world.rank, client, timeout=start_timeout, spin=spin
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


def _listen(host: str) -> tuple[socket.socket, Address]:
    """Listen on ``host`` if this machine has the address; behind address translation, on all addresses."""
    try:
        listener = create_server(host, 0, BACKLOG)
    except OSError:
        listener = create_server("", 0, BACKLOG)
    return listener, (host, listener.getsockname()[1])


def _listen_here(name: str) -> tuple[socket.socket, Address]:
    """Listen for ranks of this machine, on a named socket where the system has them, because it is faster than TCP."""
    try:
        return listen(name, BACKLOG), (name, NAMED)
    except OSError:
        return _listen(LOOPBACK)


@dataclass(frozen=True)
class Master:
    """Where rank 0 listens, as it has published it."""

    address: str
    port: int
    secret: str


_known: tuple[Path, Master] | None = None
"""The file, and the master that this process has published in it or read from it. A second ``init`` keeps it, because
it uses the same store."""
_published: Path | None = None


def find_master(world: World, timeout: float, environ: Mapping[str, str] = os.environ) -> World:
    """``world`` with the master address and port: those of the launcher, or else those that rank 0 publishes.

    Raises:
        CollectiveError: rank 0 published nothing within ``timeout`` seconds, or the folder cannot be used.
    """
    global _known
    in_step = started_by_srun(environ)
    if world.size == 1 or (world.master_addr and world.master_port):
        return world
    hint = "Set MASTER_ADDR and MASTER_PORT for all ranks (mpirun: -x MASTER_ADDR -x MASTER_PORT)."
    if in_step:
        hint = (
            f"All ranks of Slurm step {step_id(environ)} must call init. Set CLOUDTRAIN_HOME to a folder that you can "
            f"write to and that all nodes share, or MASTER_ADDR, MASTER_PORT and {RANKS_VARIABLE} to the same values "
            "for all ranks."
        )
    try:
        path = _step_file(environ) if in_step else _host_file(environ)
        master = _known[1] if _known and _known[0] == path else None
        if world.rank == 0:
            master = _publish(master or _new_master(world, environ), path)
        elif master is None:
            master = _read(world, path, timeout, hint)
        _known = path, master
    except (OSError, StorageError) as error:
        raise CollectiveError(f"rank {world.rank} of {world.size}: {error}", hint=hint) from error
    return replace(world, master_addr=master.address, master_port=world.master_port or master.port)


def published_secret() -> str:
    """The secret of the ranks that rank 0 has published; empty if this process has not needed it."""
    return _known[1].secret if _known else ""


def all_have_read() -> None:
    """Remove the file, because every rank has signed in. Does nothing on ranks that have not published it."""
    global _published
    if _published:
        with contextlib.suppress(OSError):
            _published.unlink()
        _published = None


atexit.register(all_have_read)


def _step_file(environ: Mapping[str, str]) -> Path:
    from cloudtrain.storage.state import state_home  # only these ranks need it

    folder = state_home() / STEPS_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / step_key(environ)


def _host_file(environ: Mapping[str, str]) -> Path:
    session = environ.get("PMIX_SERVER_TMPDIR")
    if session and os.path.isdir(session):
        return Path(session, "cloudtrain-master")
    return private_folder() / f"master-{os.getppid()}"


def _new_master(world: World, environ: Mapping[str, str]) -> Master:
    address = world.master_addr or (LOOPBACK if world.on_one_machine else own_address(environ))
    port = world.master_port or free_port(LOOPBACK if address == LOOPBACK else "")
    return Master(address, port, fresh_secret())


def _publish(master: Master, path: Path) -> Master:
    global _published
    from cloudtrain.storage.atomic import write_private  # only ranks without a launcher need it

    _published = path
    write_private(path, json.dumps([master.address, master.port, master.secret]))
    return master


def _read(world: World, path: Path, timeout: float, hint: str) -> Master:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        # NFS remembers for up to a minute that a file was missing, unless its folder is read.
        os.listdir(path.parent)
        text = read_private(path)
        if text:
            try:
                address, port, secret = json.loads(text)
                return Master(str(address), int(port), str(secret))
            except (ValueError, TypeError):
                raise CollectiveError(
                    f"{path} does not have the address of rank 0", hint="Remove it, and restart the ranks."
                ) from None
        time.sleep(POLL_SECONDS)
    raise CollectiveError(
        f"rank {world.rank} of {world.size} on {socket.gethostname()}: rank 0 did not publish its address in "
        f"{path.parent} within {timeout:g} s",
        hint=hint,
    )


def free_port(address: str) -> int:
    """A port that is free at ``address`` of this machine; if ``address`` is empty, at all addresses."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def own_address(environ: Mapping[str, str]) -> str:
    """The address at which the other nodes of the step reach this one: that of the route to ``srun``.

    If ``srun`` runs on this node, its address is already the one that the nodes use. Without a route, the node's name.
    """
    with contextlib.suppress(OSError, KeyError):
        launcher = environ["SLURM_LAUNCH_NODE_IPADDR"]
        [(family, kind, _, _, there), *_] = socket.getaddrinfo(launcher, DISCARD_PORT, type=socket.SOCK_DGRAM)
        with socket.socket(family, kind) as probe:
            probe.connect(there)
            address = str(probe.getsockname()[0])
        if not address.startswith("127.") and address != "::1":
            return address
    return environ.get("SLURMD_NODENAME") or socket.gethostname()
