"""Ranks that die, for backends whose ``wait`` only orders streams.

With Gloo, a collective with a dead rank fails. With NCCL, its kernel waits for the dead rank, and the host notices
nothing until it waits for the GPU itself, and then for as long as the timeout. But the negotiation knows: a rank's
connection ends with the rank. So the next launch or wait raises, and a thread aborts the groups of the dead rank, so
that a host that waits for the GPU returns.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.distributed.options import logger
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._failures import collective_error
from cloudtrain.distributed.torch._state import Context
from cloudtrain.observe.checkpointing import spoil

GRACE_SECONDS = 1.0
"""How long a kernel may take after the death of one of its ranks: that rank may have done its part."""
POLL_SECONDS = 0.002


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
    """Abort the groups of a rank that died, in a new thread: the other threads may sit in a wait for the GPU."""
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
    """Abort all groups after a failure: what was launched may wait for ranks that will not come."""
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
    """Whether nothing of this rank is in flight, so that an abort makes no result wrong."""
    cuda = context.device.type == "cuda"
    return context.in_flight.ended() and (not cuda or torch.cuda.default_stream(context.device).query())


def end_work(context: Context, *, failed: bool) -> bool:
    """Wait for what this rank has launched, before its groups are destroyed.

    Args:
        failed: do not wait: the script has failed.

    Returns:
        Whether all of it has ended. If not, the groups are to be aborted: destroying them would wait, too.
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
    """All groups of this process, also the script's own; the newest first, as torch destroys them."""
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
    """Abort NCCL's communicators in one block: one by one they may wait for each other.

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
