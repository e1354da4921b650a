"""How the ranks meet: everyone signs in at rank 0's store, then the backend connects them."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.contract.failure import first_line
from cloudtrain.distributed._timeouts import START_TIMEOUT
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.world import World

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
    except (RuntimeError, ValueError) as error:
        hint = "Does rank 0 run, and does MASTER_ADDR name its host?"
        raise CollectiveError(
            f"{where} could not reach the others: {first_line(str(error))}",
            hint="Give a free port as MASTER_PORT." if world.rank == 0 else hint,
        ) from error
    prefix = f"cloudtrain/{next(_meetings)}"
    store = dist.PrefixStore(prefix, server)  # type: ignore[attr-defined]
    _sign_in(world, store, start_timeout, where)
    limit = timedelta(seconds=timeout)
    try:
        dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise CollectiveError(f"{where}: backend {backend!r} failed: {first_line(str(error))}") from error


def shared_store() -> Any:
    """A store of all ranks of the default process group, fresh at every call."""
    store = dist.distributed_c10d._get_default_store()
    return dist.PrefixStore(f"cloudtrain-control/{next(_meetings)}", store)  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=1)
def _server(world: World, timeout: float) -> Any:
    """Kept for the life of the process, so that ``init`` after ``shutdown`` finds the other ranks again.

    Under torchrun the agent serves the port, and rank 0 is a client too.
    """
    agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    opened: list[Any] = []

    def open_store() -> None:
        try:
            store = dist.TCPStore(  # type: ignore[attr-defined]
                world.master_addr,
                world.master_port,
                world.size,
                is_master=world.rank == 0 and not agent_serves,
                timeout=timedelta(seconds=timeout),
                wait_for_workers=False,
                multi_tenant=True,
            )
        except (RuntimeError, ValueError) as error:
            opened.append(error)
        else:
            opened.append(store)

    # In a thread, because torch's own timeout does not hold when a stranger on the port never answers.
    thread = threading.Thread(target=open_store, daemon=True)
    thread.start()
    thread.join(timeout * 1.5)
    if not opened:
        raise CollectiveError(f"no answer within {timeout * 1.5:g} s; is the port another program's?")
    if isinstance(opened[0], Exception):
        raise opened[0]
    return opened[0]


# Before the interpreter takes its modules apart: torch joins the store's threads here.
atexit.register(_server.cache_clear)


def _sign_in(world: World, store: Any, timeout: float, where: str) -> None:
    """Wait until every rank is here, so that a missing one can be named before the backend starts."""
    store.set(f"arrived/{world.rank}", "")
    try:
        store.wait([f"arrived/{rank}" for rank in range(world.size)], timedelta(seconds=timeout))
    except RuntimeError as error:
        missing = [rank for rank in range(world.size) if not store.check([f"arrived/{rank}"])]
        raise CollectiveError(
            f"{where} waited {timeout:g} s; missing: ranks {missing}",
            hint=f"Look at their logs, or raise {START_TIMEOUT}.",
        ) from error
