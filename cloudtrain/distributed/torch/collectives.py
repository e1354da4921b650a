"""Horovod's collectives on torch tensors.

Every rank calls the same collectives in the same order. Results are the same on all ranks, bit for bit.
``name`` names the tensor in errors. All raise NotInitialized before ``init``, and CollectiveError when the
backend fails or another rank does not come in time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch import _session
from cloudtrain.distributed.torch._gather import as_bytes, gather
from cloudtrain.distributed.torch._handle import Handle, label, reported
from cloudtrain.distributed.torch._reduction import (
    ReduceOp,
    backend_op,
    chosen_op,
    scale_,
    to_wire,
)


def synchronize(handle: Handle) -> Tensor:
    """Wait for an asynchronous collective; its result."""
    return handle.wait()


def poll(handle: Handle) -> bool:
    """Whether `synchronize` would return at once."""
    return handle.done()


def barrier() -> None:
    """Wait until every rank is here."""
    session = _session.current()
    token = torch.zeros(1) if session.alone else torch.zeros(1, device=session.control_device())
    _allreduce(token, ReduceOp.Sum, 1.0, 1.0, label("barrier", None), in_place=True).wait()


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start to reduce ``tensor`` over all ranks; ``tensor`` is not changed.

    Args:
        tensor: of the same shape and type on all ranks.
        average: deprecated; True is ``op=Average``, False is ``op=Sum``.
        op: Average (the default), Sum, Min, Max or Product. An average of integers is rounded towards zero.
        prescale_factor: multiplied before the reduction.
        postscale_factor: multiplied after it.
    """
    op = chosen_op(op, average)
    return _allreduce(tensor, op, prescale_factor, postscale_factor, label("allreduce", name), in_place=False)


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """`allreduce_async` in place; ``tensor`` may not be touched before `synchronize`."""
    op = chosen_op(op, average)
    return _allreduce(tensor, op, prescale_factor, postscale_factor, label("allreduce", name), in_place=True)


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Reduce ``tensor`` over all ranks in place. Arguments as in `allreduce_async`."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor).wait()


def allgather_async(tensor: Tensor, name: str | None = None) -> Handle:
    """Start to join all ranks' tensors along the first dimension, in order of rank.

    The first dimension may differ between ranks, the others may not; a tensor without dimensions counts as
    one of one row. Returns once all ranks have told their shapes.
    """
    return gather(tensor, label("allgather", name))[0]


def broadcast_async(tensor: Tensor, root_rank: int, name: str | None = None) -> Handle:
    """Start to send the root's ``tensor`` to all ranks; the others' are of its shape, and not changed."""
    return broadcast_async_(tensor.detach().clone(memory_format=torch.contiguous_format), root_rank, name)


def broadcast_async_(tensor: Tensor, root_rank: int, name: str | None = None) -> Handle:
    """`broadcast_async` in place; ``tensor`` may not be touched before `synchronize`."""
    session = _session.current()
    if not 0 <= root_rank < session.world.size:
        raise InvalidArgument(f"root_rank {root_rank} is not one of {session.world.size} ranks")
    what = label("broadcast", name)
    wire = tensor.detach().contiguous()
    work: Any = None
    if not session.alone and tensor.numel():
        with reported(what):
            work = dist.broadcast(as_bytes(wire), root_rank, async_op=True)

    def finish() -> Tensor:
        if wire.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(wire)
        return tensor

    return Handle(what, work, finish)


def broadcast_(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """Overwrite ``tensor`` with the root's."""
    return broadcast_async_(tensor, root_rank, name).wait()


def _allreduce(
    tensor: Tensor, op: ReduceOp, prescale: float, postscale: float, what: str, *, in_place: bool
) -> Handle:
    session = _session.current()
    wire = to_wire(tensor, keep=not in_place)
    scale_(wire, prescale)
    work: Any = None
    if not session.alone and wire.numel():
        with reported(what):
            work = dist.all_reduce(wire, backend_op(op), async_op=True)

    def finish() -> Tensor:
        scale_(wire, postscale, session.world.size if op == ReduceOp.Average else 1)
        if not in_place:
            return wire.to(tensor.dtype)
        if wire.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(wire)
        return tensor

    return Handle(what, work, finish)
