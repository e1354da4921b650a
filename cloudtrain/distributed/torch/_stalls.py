"""Warns of exchanges inside layers that other ranks do not take part in.

The coordinator warns only of what is negotiated.
"""

from __future__ import annotations

import threading

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
        threading.Thread(target=_watch, args=(context, limit), name="cloudtrain-stalls", daemon=True).start()


def _watch(context: Context, limit: float) -> None:
    client, warned = context.client, 0
    while not client.closed.wait(min(limit / 4, _POLL_SECONDS)):
        waiting = client.layer_numbers.waiting(limit)
        if waiting is None or waiting[0] == warned:
            continue
        warned, label = waiting
        found = client.positions()
        called = [rank for rank in sorted(found) if found[rank]["layers"]["launched"] >= warned]
        absent = [rank for rank in range(context.world.size) if rank not in called]
        if absent:
            logger.warning(
                "waiting for %g s: %s: ranks %s have called it, ranks %s have not",
                limit,
                label,
                called,
                absent,
            )
