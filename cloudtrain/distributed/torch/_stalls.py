"""Warns of exchanges inside layers that other ranks do not take part in.

The coordinator warns only of what is negotiated.
"""

from __future__ import annotations

import threading
import weakref

from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.options import logger, warn_after
from cloudtrain.distributed.torch._state import Context

_POLL_SECONDS = 5.0


def watch(context: Context) -> None:
    """Warn of what has been in flight for long, until `shutdown`. Further calls do nothing."""
    if context.layers.watched:
        return
    context.layers.watched = True
    limit = warn_after()
    if limit != float("inf"):
        arguments = (context.client.closed, weakref.ref(context.client), context.world.size, limit)
        threading.Thread(target=_watch, args=arguments, name="cloudtrain-stalls", daemon=True).start()


def _watch(closed: threading.Event, client: weakref.ref[NegotiationClient], size: int, limit: float) -> None:
    # It keeps nothing of the context while it waits: a process group that a thread holds aborts Python at exit.
    warned = 0
    while not closed.wait(min(limit / 4, _POLL_SECONDS)):
        warned = _warn(client(), size, limit, warned)


def _warn(client: NegotiationClient | None, size: int, limit: float, warned: int) -> int:
    """Warn of the oldest exchange in flight, once. Returns the number of the last one that was warned of."""
    waiting = client.layer_numbers.waiting(limit) if client is not None else None
    if client is None or waiting is None or waiting[0] == warned:
        return warned
    number, label = waiting
    found = client.positions()
    called = [rank for rank in sorted(found) if found[rank]["layers"]["launched"] >= number]
    absent = [rank for rank in range(size) if rank not in called]
    if absent:
        logger.warning(
            "waiting for %g s: %s: ranks %s have called it, ranks %s have not", limit, label, called, absent
        )
    return number
