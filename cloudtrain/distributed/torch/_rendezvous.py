"""Rendezvous: all ranks sign in at rank 0's store, and then the backend connects them."""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.contract.failure import first_line
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.options import START_TIMEOUT, default_timeout
from cloudtrain.distributed.torch._devices import agree_on_backend
from cloudtrain.distributed.world import LOOPBACK, World

LOOPBACK_INTERFACES = ("lo", "lo0")
"""On Linux, and on macOS."""
BACKLOG = 1024
"""Connections to the store that may wait: all ranks connect at the same time."""
POLL_SECONDS = 0.02
"""How often a rank checks the store while it waits for the others."""
TORCH_SLACK = 5.0
"""Seconds that torch may be late on a busy machine. A torch thread that still runs when Python exits aborts it."""

_meetings = itertools.count()


def on_loopback(world: World) -> World:
    """``world``, with a store and with connections that only this machine can reach, if all ranks are on it.

    The address does not change if an elastic agent serves the store, or if this machine does not have the address.
    """
    if not world.on_one_machine:
        return world
    for _, name in socket.if_nameindex():
        if name in LOOPBACK_INTERFACES:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
            break
    if _agent_serves() or not _is_own_address(world.master_addr):
        return world
    return replace(world, master_addr=LOOPBACK)


def init_process_group(
    world: World, device: torch.device, backend: str | None, start_timeout: float, timeout: float
) -> None:
    """Create the default process group of ``torch.distributed``.

    Args:
        device: this rank's device. NCCL connects it immediately and uses no other, so that a barrier need not guess.
        backend: None selects Gloo for CPU tensors, and for GPU tensors the result of `agree_on_backend`.
        start_timeout: seconds to wait for the other ranks.
        timeout: seconds that one collective may take; 0 for the default of the backend.

    Raises:
        CollectiveError: the rendezvous failed.
        InvalidArgument: the backend cannot connect the GPUs of the ranks.
    """
    where = f"rank {world.rank} of {world.size} at {world.master_addr}:{world.master_port}"
    try:
        server = _server(world, start_timeout)
    except (RuntimeError, ValueError, OSError) as error:
        hint = "Check that rank 0 runs, and that MASTER_ADDR names its host."
        raise CollectiveError(
            f"{where} could not reach the others: {first_line(str(error))}",
            hint="Set MASTER_PORT to a free port." if world.rank == 0 else hint,
        ) from error
    store = _fresh_store(server, world, start_timeout, where)
    try:
        backend = agree_on_backend(store, world, device, backend)
    except dist.DistError as error:
        raise CollectiveError(f"{where} lost a rank: {first_line(str(error))}") from error
    try:
        dist.init_process_group(
            backend,
            store=store,
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=timeout or default_timeout(backend)),
            device_id=device if "nccl" in backend and device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError) as error:
        raise CollectiveError(f"{where}: backend {backend!r} failed: {first_line(str(error))}") from error


def shared_store(world: World, start_timeout: float) -> Any:
    """A store shared by all ranks of the default process group; a new, empty one at every call."""
    where = f"rank {world.rank} of {world.size}"
    return _fresh_store(dist.distributed_c10d._get_default_store(), world, start_timeout, where)


def _fresh_store(store: Any, world: World, timeout: float, where: str) -> Any:
    """An unused part of ``store``, which is the same for all ranks that make this call for the n-th time.

    Restarted ranks therefore do not rendezvous with ranks that continued, which are at another point of the script.

    Raises:
        CollectiveError: the rendezvous failed.
    """
    store = dist.PrefixStore(f"cloudtrain/{next(_meetings)}", store)  # type: ignore[attr-defined]
    return dist.PrefixStore(_sign_in(world, store, timeout, where), store)  # type: ignore[attr-defined]


def _agent_serves() -> bool:
    """Whether torchrun's agent serves the store. Then rank 0 is a client, too."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _is_own_address(host: str) -> bool:
    """Whether a server on this machine can have the address of ``host``."""
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family) as probe:
                probe.bind(address)
        return True
    except OSError:
        return False


_servers: dict[World, Any] = {}
"""Kept for the life of the process, so that ``init`` after ``shutdown`` finds the other ranks."""


def _server(world: World, timeout: float) -> Any:
    """The store of all ranks. Under torchrun the agent serves it, and rank 0 is a client too."""
    if world in _servers:
        return _servers[world]
    is_master = world.rank == 0 and not _agent_serves()
    opened: list[Any] = []

    def open_store() -> None:
        try:
            _reach(world, timeout, serves=is_master)
            listener = None  # torch would listen on all interfaces
            if is_master and world.master_addr == LOOPBACK:
                listener = socket.create_server((LOOPBACK, world.master_port), backlog=BACKLOG).detach()
            store = dist.TCPStore(  # type: ignore[attr-defined]
                world.master_addr,
                world.master_port,
                world.size,
                is_master=is_master,
                timeout=timedelta(seconds=timeout),
                wait_for_workers=False,
                multi_tenant=True,
                master_listen_fd=listener,
            )
        except (RuntimeError, ValueError, OSError) as error:
            opened.append(error)
        else:
            opened.append(store)

    # In a thread, because torch's timeout does not apply if another program on the port never answers.
    thread = threading.Thread(target=open_store, daemon=True)
    thread.start()
    longest = 1.5 * timeout + TORCH_SLACK
    thread.join(longest)
    if not opened:
        raise CollectiveError(f"no answer within {longest:g} s; another program may be using the port")
    if isinstance(opened[0], Exception):
        raise opened[0]
    _servers[world] = opened[0]
    return opened[0]


def _reach(world: World, timeout: float, *, serves: bool) -> None:
    """Wait until the store's host name resolves and, unless this rank serves it, its port accepts connections.

    The name of a pod may appear late, and so may rank 0. torch would wait, too, but longer than its timeout: it then
    resolves the names of its C++ functions, which takes seconds on a busy machine, and aborts a Python process that is
    about to exit.

    Raises:
        OSError: ``timeout`` seconds have passed.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            if serves:
                socket.getaddrinfo(world.master_addr, None)
            else:
                address = (world.master_addr, world.master_port)
                socket.create_connection(address, max(end - time.monotonic(), POLL_SECONDS)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(POLL_SECONDS)


# Before the interpreter unloads its modules: torch joins the store's threads here.
atexit.register(_servers.clear)


def _sign_in(world: World, store: Any, timeout: float, where: str) -> str:
    """Wait until every rank has signed in, so that a missing rank can be named before the backend starts.

    The store of an elastic agent outlives the ranks and holds the keys of earlier starts. Rank 0 therefore publishes a
    new token, and every other rank replies to the token that it reads with its own token. Only ranks of this start can
    have read the new token. A rank that replied to an old token gets no confirmation, and reads again.

    Returns:
        Rank 0's token, on all ranks.
    """
    end = time.monotonic() + timeout
    own = os.urandom(8).hex()
    try:
        if world.rank == 0:
            store.set("token", own)
            answers = [f"{own}/{rank}" for rank in range(1, world.size)]
            while missing := [rank for rank, answer in enumerate(answers, 1) if not store.check([answer])]:
                if time.monotonic() > end:
                    raise CollectiveError(
                        f"{where} waited {timeout:g} s; missing: ranks {missing}",
                        hint=f"Check the logs of those ranks, or raise {START_TIMEOUT}.",
                    )
                time.sleep(POLL_SECONDS)
            for answer in answers:
                store.set(store.get(answer).decode(), own)
            return own
        seen = ""
        while not store.check([own]):
            if store.check(["token"]) and (token := store.get("token").decode()) != seen:
                seen = token
                store.set(f"{token}/{world.rank}", own)
            if time.monotonic() > end:
                raise CollectiveError(
                    f"{where} waited {timeout:g} s for rank 0 and the others",
                    hint=f"Check the logs of the other ranks, or raise {START_TIMEOUT}.",
                )
            time.sleep(POLL_SECONDS)
        return str(store.get(own).decode())
    except dist.DistError as error:
        raise CollectiveError(f"{where} lost rank 0: {first_line(str(error))}") from error
