"""How the ranks meet: everyone signs in at rank 0's store, then the backend connects them."""

from __future__ import annotations

import atexit
import itertools
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.contract.failure import first_line
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.options import START_TIMEOUT
from cloudtrain.distributed.world import World

LOOK_SECONDS = 0.02
"""How often a rank looks into the store while it waits for the others."""
TORCH_SLACK = 5.0
"""Seconds that torch may be late on a busy machine. A thread of its own that is still at it when Python ends aborts."""

_meetings = itertools.count()


def join(world: World, backend: str | None, start_timeout: float, timeout: float) -> None:
    """Make the default process group of ``torch.distributed``.

    Args:
        backend: None takes Gloo for CPU tensors and, where there is CUDA, NCCL for GPU tensors.
        start_timeout: seconds to wait for the other ranks.
        timeout: seconds that one collective may take.

    Raises:
        CollectiveError: the ranks did not meet.
    """
    where = f"rank {world.rank} of {world.size} at {world.master_addr}:{world.master_port}"
    if backend is None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    try:
        server = _server(world, start_timeout)
    except (RuntimeError, ValueError, OSError) as error:
        hint = "Does rank 0 run, and does MASTER_ADDR name its host?"
        raise CollectiveError(
            f"{where} could not reach the others: {first_line(str(error))}",
            hint="Give a free port as MASTER_PORT." if world.rank == 0 else hint,
        ) from error
    store = _fresh_store(server, world, start_timeout, where)
    limit = timedelta(seconds=timeout)
    try:
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise CollectiveError(f"{where}: backend {backend!r} failed: {first_line(str(error))}") from error


def shared_store(world: World, start_timeout: float) -> Any:
    """A store of all ranks of the default process group, fresh at every call."""
    where = f"rank {world.rank} of {world.size}"
    return _fresh_store(dist.distributed_c10d._get_default_store(), world, start_timeout, where)


def _fresh_store(store: Any, world: World, timeout: float, where: str) -> Any:
    """Part of a store that nobody has used, the same on all ranks that call this now, as often as this one has.

    So ranks that were started anew do not meet ranks that go on: those are at another place of the script.

    Raises:
        CollectiveError: the ranks did not meet.
    """
    store = dist.PrefixStore(f"cloudtrain/{next(_meetings)}", store)  # type: ignore[attr-defined]
    return dist.PrefixStore(_sign_in(world, store, timeout, where), store)  # type: ignore[attr-defined]


_servers: dict[World, Any] = {}
"""Kept for the life of the process, so that ``init`` after ``shutdown`` finds the other ranks again."""


def _server(world: World, timeout: float) -> Any:
    """Under torchrun the agent serves the port, and rank 0 is a client too."""
    if world in _servers:
        return _servers[world]
    agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    opened: list[Any] = []

    def open_store() -> None:
        try:
            _resolve(world.master_addr, timeout)
            store = dist.TCPStore(  # type: ignore[attr-defined]
                world.master_addr,
                world.master_port,
                world.size,
                is_master=world.rank == 0 and not agent_serves,
                timeout=timedelta(seconds=timeout),
                wait_for_workers=False,
                multi_tenant=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            opened.append(error)
        else:
            opened.append(store)

    # In a thread, because torch's own timeout does not hold when a stranger on the port never answers.
    thread = threading.Thread(target=open_store, daemon=True)
    thread.start()
    longest = 1.5 * timeout + TORCH_SLACK
    thread.join(longest)
    if not opened:
        raise CollectiveError(f"no answer within {longest:g} s; is the port another program's?")
    if isinstance(opened[0], Exception):
        raise opened[0]
    _servers[world] = opened[0]
    return opened[0]


def _resolve(host: str, timeout: float) -> None:
    """Wait for a name that may not be known yet, as that of a pod is. Raises OSError.

    torch would wait too, but longer than its timeout, and then abort a Python that is about to exit.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except OSError:
            if time.monotonic() > end:
                raise
        time.sleep(LOOK_SECONDS)


# Before the interpreter takes its modules apart: torch joins the store's threads here.
atexit.register(_servers.clear)


def _sign_in(world: World, store: Any, timeout: float, where: str) -> str:
    """Wait until every rank is here, so that a missing one can be named before the backend starts.

    The store of an elastic agent outlives the ranks, and is full of what ranks of earlier starts have written. So
    rank 0 puts up a new word, and every other rank answers the word that it sees with a word of its own: only ranks
    of this start can have seen the new one. A rank that answered an old word gets no reply, and looks again.

    Returns:
        rank 0's word, on all ranks.
    """
    end = time.monotonic() + timeout
    own = os.urandom(8).hex()
    try:
        if world.rank == 0:
            store.set("word", own)
            answers = [f"{own}/{rank}" for rank in range(1, world.size)]
            while missing := [rank for rank, answer in enumerate(answers, 1) if not store.check([answer])]:
                if time.monotonic() > end:
                    raise CollectiveError(
                        f"{where} waited {timeout:g} s; missing: ranks {missing}",
                        hint=f"Look at their logs, or raise {START_TIMEOUT}.",
                    )
                time.sleep(LOOK_SECONDS)
            for answer in answers:
                store.set(store.get(answer).decode(), own)
            return own
        seen = ""
        while not store.check([own]):
            if store.check(["word"]) and (word := store.get("word").decode()) != seen:
                seen = word
                store.set(f"{word}/{world.rank}", own)
            if time.monotonic() > end:
                raise CollectiveError(
                    f"{where} waited {timeout:g} s for rank 0 and the others",
                    hint=f"Look at their logs, or raise {START_TIMEOUT}.",
                )
            time.sleep(LOOK_SECONDS)
        return str(store.get(own).decode())
    except dist.DistError as error:
        raise CollectiveError(f"{where} lost rank 0: {first_line(str(error))}") from error
