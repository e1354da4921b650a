"""The errors of failed collectives: they name the operation, and the ranks that ended, or are behind or ahead."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from cloudtrain.contract.failure import first_line
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.torch import _state

_SOURCE_LOCATION = re.compile(r"^\[[^]]*\.cc:\d+] ")
_LOSS_SECONDS = 1.0
"""How long the notice of a rank's death may lag behind the failure that it caused."""


@contextlib.contextmanager
def collective_errors(label: str) -> Iterator[None]:
    """Turn a failure of the backend into a CollectiveError that names the operation and the ranks."""
    try:
        yield
    except CollectiveError:
        raise
    except RuntimeError as error:
        raise collective_error(label, error) from error


def collective_error(label: str, error: RuntimeError) -> CollectiveError:
    """The error to raise for a failure of the backend."""
    reason = _SOURCE_LOCATION.sub("", first_line(str(error)))
    return CollectiveError(
        f"{label} failed on rank {_state.rank()}: {_culprits() or reason}",
        hint="Look at the log of that rank. Another rank died, hangs, or called a different collective.",
    )


def _culprits() -> str:
    """The ranks that ended; if there are none, the ranks that are behind or ahead."""
    client = _state.current().client
    # Ask right away: ranks that failed for the same reason as this one are about to exit, and are not the cause.
    positions = {} if client.left else client.positions()
    deadline = time.monotonic() + _LOSS_SECONDS
    while client.left.keys() <= positions.keys() and time.monotonic() < deadline:
        time.sleep(0.02)
    ended = [f"rank {rank} {why}" for rank, why in list(client.left.items()) if rank not in positions]
    if ended or not positions:
        return "; ".join(ended) or "rank 0 does not answer"
    silent = [rank for rank in range(_state.size()) if rank not in positions]
    parts = [f"ranks {silent} do not answer"] if silent else []
    return "; ".join(parts + _elsewhere(client, positions))


def _elsewhere(client: NegotiationClient, positions: Mapping[int, Any]) -> list[str]:
    """For each rank that is behind this one or ahead of it, where it is."""
    parts = []
    for rank, position in sorted(positions.items()):
        layers = position["layers"]
        ahead = layers["launched"] - client.layer_numbers.count
        if ahead:  # their names repeat in every step
            where = f"{ahead} ahead" if ahead > 0 else f"{-ahead} behind"
            parts.append(f"rank {rank} is at {layers['at'] or 'no collective'}, {where}")
        elif position["launched"] != client.sequence_numbers.count:
            parts.append(f"rank {rank} is at {position['at'] or 'no collective'}")
    return parts
