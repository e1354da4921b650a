"""Rank 0 opens a port, all others learn of it from a store that they share already, and connect."""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Callable, Protocol

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import Engine
from cloudtrain.distributed.negotiation.connection import Link
from cloudtrain.distributed.negotiation.coordinator import Coordinator
from cloudtrain.distributed.negotiation.matcher import Combine

KEY = "cloudtrain/control"


class Store(Protocol):
    """What ``torch.distributed`` stores offer."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...


def connect(
    engine: Engine,
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
    """Give ``engine`` its channel. To be called by all ranks.

    Args:
        store: shared by all ranks.
        address: of rank 0's host, as the other ranks reach it.
        start_timeout: seconds to wait for a connection.

    Raises:
        CollectiveError: rank 0 cannot be reached.
    """
    ends: dict[str, Callable[..., Any]] = {
        "deliver": engine.deliver,
        "lose": engine.lose,
        "place": engine.launches.place,
    }
    if rank == 0:
        listener = _listen(address, size)
        token = os.urandom(16).hex()
        engine.channel = Coordinator(
            listener, token, size, combine, timeout=timeout, warn_after=warn_after, **ends
        )
        store.set(KEY, json.dumps([address, listener.getsockname()[1], token]))
        return
    host, port, token = json.loads(store.get(KEY))
    try:
        engine.channel = Link((host, port), token, rank, timeout=start_timeout, **ends)
    except OSError as error:
        raise CollectiveError(
            f"rank {rank} could not reach rank 0 at {host}:{port}: {error}",
            hint="Ranks talk over TCP ports that rank 0 chooses: are they open between the hosts?",
        ) from error


def _listen(address: str, size: int) -> socket.socket:
    """On that address alone where it is one of this host's; behind a translated one, on all."""
    try:
        return socket.create_server((address, 0), backlog=size)
    except OSError:
        return socket.create_server(("", 0), backlog=size)
