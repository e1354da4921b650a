"""Collectives that fail or never end: their errors, ranks that die, and warnings of stalls.

An error names the operation, and the ranks that ended, or are behind or ahead.

With Gloo, a collective with a dead rank fails. With NCCL, whose ``wait`` only orders streams, its kernel waits for the
dead rank, and the host notices nothing until it waits for the GPU itself, which takes as long as the timeout. But a
rank's connection to the coordinator closes when the rank ends. Therefore the next launch or wait raises, and a thread
aborts the groups of the dead rank, so that a host that waits for the GPU returns.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.contract.failure import first_line
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.negotiation.client import NegotiationClient
from cloudtrain.distributed.options import logger, warn_after
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._state import Context
from cloudtrain.observe.checkpointing import spoil

_SOURCE_LOCATION = re.compile(r"^\[[^]]*\.cc:\d+] ")
_LOSS_SECONDS = 1.0
"""How long the notice of a rank's death may lag behind the failure that it caused."""
GRACE_SECONDS = 1.0
"""How long a kernel may take after the death of one of its ranks: that rank may have done its part."""
POLL_SECONDS = 0.002
STALL_POLL_SECONDS = 5.0


class collective_errors:
    """Turns a failure of the backend in its block into a CollectiveError that names the operation and the ranks.

    A class, because a step has many of these blocks, and a generator takes longer to enter.
    """

    __slots__ = ("_label",)

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, CollectiveError):
            raise collective_error(self._label, error) from error


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
    # Query right away: ranks that failed for the same reason as this one are about to exit, and are not the cause.
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
    """The position of each rank that is behind this one or ahead of it."""
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


def check_alive(label: str, group: Any) -> None:
    """Raises CollectiveError if a rank of ``group`` has ended: what is launched now would never end."""
    left = _state.current().client.left
    if left and not left.keys().isdisjoint(_ranks(group)):
        raise collective_error(label, RuntimeError("a rank has ended"))


def check_ended(label: str, work: Any) -> None:
    """Call it after a lazy wait for ``work``. Raises CollectiveError if a rank that the work needs has died."""
    context = _state.current_or_none()
    if context is None or not context.client.lost:
        return
    deadline = time.monotonic() + GRACE_SECONDS
    while (group := context.in_flight.group_of(work)) is not None:
        if context.client.lost.keys().isdisjoint(_ranks(group)):
            return
        if time.monotonic() > deadline:
            raise collective_error(label, RuntimeError("a rank has died"))
        time.sleep(POLL_SECONDS)


def on_death(rank: int) -> None:
    """Abort the groups of a rank that died, in a new thread: the other threads may be blocked in a wait for the GPU."""
    context = _state.current_or_none()
    if context is not None and context.waits_lazily:
        threading.Thread(
            target=_abort_later, args=(context, rank), name="cloudtrain-abort", daemon=True
        ).start()


def _abort_later(context: Context, rank: int) -> None:
    time.sleep(GRACE_SECONDS)
    now = _state.current_or_none()
    if now is None or now.client is not context.client:
        return  # shutdown has done it
    logger.warning("rank %d has died: aborting the collectives that wait for it", rank)
    abort(context, rank)


def give_up() -> None:
    """Abort all groups after a failure: what was launched may wait for ranks that will not join."""
    context = _state.current_or_none()
    if context is not None and context.waits_lazily:
        abort(context)


def abort(context: Context, rank: int | None = None) -> None:
    """Abort the groups that ``rank`` belongs to, by default all: their kernels return, without results."""
    groups = [group for group in _all_groups() if rank is None or rank in _ranks(group)]
    if not _is_idle(context):
        spoil("collectives that waited for other ranks were aborted")
    context.in_flight.aborts(groups)
    with _together(groups):
        for group in groups:
            _abort_group(group)


def _is_idle(context: Context) -> bool:
    """Whether nothing of this rank is in flight, so that an abort invalidates no result."""
    cuda = context.device.type == "cuda"
    return context.in_flight.ended() and (not cuda or torch.cuda.default_stream(context.device).query())


def end_work(context: Context, *, failed: bool) -> bool:
    """Wait for what this rank has launched, before its groups are destroyed.

    Args:
        failed: whether the script has failed, in which case nothing is waited for.

    Returns:
        Whether all of it has ended. If not, the groups must be aborted, because destroying them would wait, too.
    """
    if failed or context.in_flight.aborted:
        return False
    marks = [context.in_flight.ended]
    if context.device.type == "cuda":  # also what the script has launched by itself
        marks.append(torch.cuda.current_stream(context.device).record_event().query)
    deadline = time.monotonic() + context.timeout
    lost_at = None
    while not all(mark() for mark in marks):
        now = time.monotonic()
        if context.client.lost and lost_at is None:
            lost_at = now
        if now > deadline or (lost_at is not None and now > lost_at + GRACE_SECONDS):
            return False
        time.sleep(POLL_SECONDS)
    return True


def script_failed() -> bool:
    """Whether an exception ends this process. Python sets these variables before it calls ``sys.excepthook``."""
    return getattr(sys, "last_value", None) is not None


def _ranks(group: Any) -> Iterable[int]:
    return dist.get_process_group_ranks(group)


def _all_groups() -> list[Any]:
    """All groups of this process, including the script's own; newest first, the order in which torch destroys them."""
    known = dist.distributed_c10d._world.pg_names
    return sorted(known, key=lambda group: str(known.get(group)), reverse=True)


def _abort_group(group: Any) -> None:
    """``ProcessGroup.abort``, which older versions of torch have on the backend only."""
    owner: Any = group
    if not hasattr(group, "abort"):
        owner = group._get_backend(torch.device("cuda"))
    call = getattr(owner, "abort", None) or getattr(owner, "_abort", None) or owner._shutdown
    call()


@contextlib.contextmanager
def _together(groups: list[Any]) -> Any:
    """Abort NCCL's communicators in one block, because one by one they may wait for each other.

    See https://github.com/pytorch/pytorch/issues/119797.
    """
    backend: Any = None
    if groups and torch.cuda.is_available():
        with contextlib.suppress(RuntimeError):
            backend = groups[-1]._get_backend(torch.device("cuda"))
    if not hasattr(backend, "_group_start"):
        yield
        return
    backend._group_start()
    try:
        yield
    finally:
        backend._group_end()


def watch_stalls(context: Context) -> None:
    """Warn of exchanges inside layers that other ranks do not take part in, until `shutdown`.

    The coordinator warns only of what is negotiated. Further calls do nothing.
    """
    if context.layers.watched:
        return
    context.layers.watched = True
    limit = warn_after()
    if limit != float("inf"):
        arguments = (context.client.closed, weakref.ref(context.client), context.world.size, limit)
        threading.Thread(target=_watch_stalls, args=arguments, name="cloudtrain-stalls", daemon=True).start()


def _watch_stalls(
    closed: threading.Event, client: weakref.ref[NegotiationClient], size: int, limit: float
) -> None:
    # It keeps no reference to the context while it waits: a process group that a thread refers to aborts Python at
    # exit.
    warned = 0
    while not closed.wait(min(limit / 4, STALL_POLL_SECONDS)):
        warned = _warn_of_stall(client(), size, limit, warned)


def _warn_of_stall(client: NegotiationClient | None, size: int, limit: float, warned: int) -> int:
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
