"""The collectives through which gradients flow, with the gradients of Horovod 0.28.

A gradient is reduced as its value was, so the backward pass runs the same collectives on all ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch import _session
from cloudtrain.distributed.torch._gather import gather
from cloudtrain.distributed.torch._handle import label
from cloudtrain.distributed.torch._reduction import Average, ReduceOp, Sum, chosen_op
from cloudtrain.distributed.torch.collectives import allreduce_async, broadcast_async
from cloudtrain.distributed.torch.compression import Compression, Compressor


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """``tensor`` reduced over all ranks. Arguments as in `allreduce_async`.

    Differentiable for Average and Sum: the gradient is reduced in the same way.
    """
    wire, context = compression.compress(tensor)
    op = chosen_op(op, average)
    reduced: Tensor = _Allreduce.apply(  # type: ignore[no-untyped-call]
        wire, name, op, prescale_factor, postscale_factor
    )
    return compression.decompress(reduced, context)


def allgather(tensor: Tensor, name: str | None = None) -> Tensor:
    """All ranks' tensors joined along the first dimension. Arguments as in `allgather_async`.

    Differentiable: the gradient is averaged over ranks, and this rank's rows are taken.
    """
    gathered: Tensor = _Allgather.apply(tensor, name)  # type: ignore[no-untyped-call]
    return gathered


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """The root's ``tensor``; ``tensor``, of the same shape on all ranks, is not changed.

    Differentiable: the gradient is averaged over ranks on the root, and zero elsewhere.
    """
    sent: Tensor = _Broadcast.apply(tensor, root_rank, name)  # type: ignore[no-untyped-call]
    return sent


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: str | None, op: ReduceOp, pre: float, post: float) -> Tensor:
        ctx.name, ctx.op, ctx.factors = name, op, (pre, post)
        return allreduce_async(tensor, None, name, op, pre, post).wait()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.op not in (Average, Sum):
            raise InvalidArgument(
                f"allreduce with op={ctx.op.name} has no gradient", hint="Detach the tensor before the call."
            )
        pre, post = ctx.factors
        return allreduce_async(gradient, None, ctx.name, ctx.op, pre, post).wait(), None, None, None, None


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: str | None) -> Tensor:
        handle, rows = gather(tensor, label("allgather", name))
        ctx.name, ctx.rows, ctx.shape = name, rows, tensor.shape
        return handle.wait()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        averaged = allreduce_async(gradient, name=ctx.name, op=Average).wait()
        rank = _session.rank()
        own = averaged.narrow(0, sum(ctx.rows[:rank]), ctx.rows[rank])
        return own.reshape(ctx.shape), None


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root_rank: int, name: str | None) -> Tensor:
        ctx.name, ctx.root_rank = name, root_rank
        return broadcast_async(tensor, root_rank, name).wait()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        averaged = allreduce_async(gradient, name=ctx.name, op=Average).wait()
        return averaged if _session.rank() == ctx.root_rank else torch.zeros_like(averaged), None, None
