"""Rendezvous of ranks that Slurm's ``srun`` started, on one host or on several.

Rank 0 publishes where it listens, and a fresh secret of the ranks, in a file of the user's state folder that only the
user can read. The other ranks wait for it. The file's name is that of the step's start: a step that was requeued, or a
second program of the same step, does not find the file of an earlier one. Once all ranks have signed in, it is removed.
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

from cloudtrain.contract.slurm_step import step_id, step_key
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.secret import read_private, write_private
from cloudtrain.distributed.world import LOOPBACK, World
from cloudtrain.errors import StorageError
from cloudtrain.link.secret import RANKS_VARIABLE, fresh_secret

FOLDER = "steps"
"""In the state folder."""
POLL_SECONDS = 0.05
DISCARD_PORT = 9
"""Nothing is sent to it: it only lets the kernel choose a route."""


@dataclass(frozen=True)
class StepMaster:
    """Where rank 0 of the step listens."""

    address: str
    port: int
    secret: str


_known: StepMaster | None = None
"""That of this process. It stays the same for a second ``init``, which uses the same store."""
_published: Path | None = None


def find(world: World, timeout: float, environ: Mapping[str, str]) -> World:
    """``world`` with the address and the port that rank 0 has published; rank 0 publishes them.

    Raises:
        CollectiveError: rank 0 published nothing within ``timeout`` seconds, or the folder cannot be used.
    """
    global _known
    if _known is None:
        try:
            path = _path(environ)
            _known = _publish(world, path, environ) if world.rank == 0 else _read(world, path, timeout)
        except (OSError, StorageError) as error:
            raise CollectiveError(
                f"rank {world.rank} of {world.size}: {error}", hint=_hint(environ)
            ) from error
    return replace(world, master_addr=_known.address, master_port=world.master_port or _known.port)


def secret() -> str:
    """The secret of the ranks that rank 0 has published; empty if this process has not called `find`."""
    return _known.secret if _known else ""


def all_have_read() -> None:
    """Remove the file: every rank has signed in. On ranks that have not published it, nothing happens."""
    global _published
    if _published:
        with contextlib.suppress(OSError):
            _published.unlink()
        _published = None


atexit.register(all_have_read)


def free_port(address: str) -> int:
    """A port that is free at ``address``, which is this machine's. Empty: at all addresses."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        port: int = probe.getsockname()[1]
        return port


def _path(environ: Mapping[str, str]) -> Path:
    from cloudtrain.storage.state import state_home  # only these ranks need it

    folder = state_home() / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / step_key(environ)


def _publish(world: World, path: Path, environ: Mapping[str, str]) -> StepMaster:
    global _published
    address = world.master_addr or (LOOPBACK if world.on_one_machine else own_address(environ))
    port = world.master_port or free_port(LOOPBACK if address == LOOPBACK else "")
    master = StepMaster(address, port, fresh_secret())
    _published = path
    write_private(path, json.dumps([master.address, master.port, master.secret]))
    return master


def _read(world: World, path: Path, timeout: float) -> StepMaster:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        os.listdir(
            path.parent
        )  # NFS remembers for up to a minute that a file was missing, unless its folder is read
        text = read_private(path)
        if text:
            try:
                address, port, given = json.loads(text)
                return StepMaster(str(address), int(port), str(given))
            except (ValueError, TypeError):
                raise CollectiveError(
                    f"{path} does not have the address of rank 0", hint="Remove it, and start the step again."
                ) from None
        time.sleep(POLL_SECONDS)
    raise CollectiveError(
        f"rank {world.rank} of {world.size} on {socket.gethostname()}: rank 0 of the Slurm step did not publish its "
        f"address in {path.parent} within {timeout:g} s",
        hint="All ranks must call init. Set CLOUDTRAIN_HOME to a folder that all nodes share, or MASTER_ADDR, "
        f"MASTER_PORT and {RANKS_VARIABLE} to the same values for all ranks.",
    )


def own_address(environ: Mapping[str, str]) -> str:
    """The address at which the other nodes of the step reach this one: that of the route to ``srun``.

    If ``srun`` runs on this node, its address is already the one that the nodes use. Otherwise, the name of the node.
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


def _hint(environ: Mapping[str, str]) -> str:
    return (
        f"The ranks of Slurm step {step_id(environ)} meet in the state folder: set CLOUDTRAIN_HOME to a folder "
        "that you can write to and that all nodes share."
    )
