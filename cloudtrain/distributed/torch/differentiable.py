"""The synchronous collectives, differentiable as in Horovod 0.28.

A gradient is reduced like its value: the backward pass runs the same collectives on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloudtrain.distributed._compression import Compressor
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum, chosen_op
from cloudtrain.distributed.torch._exchanges import exchange, gather_tensors
from cloudtrain.distributed.torch._reductions import reduce_tensors, scatter_tensors
from cloudtrain.distributed.torch._state import global_process_set
from cloudtrain.distributed.torch.collectives import broadcast_async, listed
from cloudtrain.distributed.torch.compression import Compression

__all__ = [
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "reducescatter",
]

Gradients = tuple[Any, ...]


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """``tensor`` reduced over the ranks. Arguments as for `allreduce_async`.

    Differentiable for Average and Sum: the gradient is reduced in the same way.
    """
    op = chosen_op(op, average)
    [reduced] = _reduced([tensor], name, compression, op, prescale_factor, postscale_factor, process_set)
    return reduced


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """`allreduce` of several tensors as one operation."""
    op, tensors = chosen_op(op, average), listed(tensors)
    return _reduced(tensors, name, compression, op, prescale_factor, postscale_factor, process_set)


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """All ranks' tensors concatenated along the first dimension. Arguments as for `allgather_async`.

    Differentiable: the gradient is averaged over ranks, and each rank takes its rows.
    """
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """`allgather` of several tensors as one operation."""
    return list(_apply(_Allgather, name, process_set, *listed(tensors)))


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The root's ``tensor``. The others pass a tensor of its shape, which is not changed.

    Differentiable: on the root the gradient is averaged over ranks, on the other ranks it is zero.
    """
    sent: Tensor = _apply(_Broadcast, tensor, root_rank, name, process_set)
    return sent


def alltoall(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows that all ranks send to this one. Arguments and result as for `alltoall_async`.

    Differentiable: gradients are sent back to where the rows came from.
    """
    if splits is not None and not isinstance(splits, Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    output, received = _apply(_Alltoall, tensor, splits, name, process_set)
    return output if splits is None else (output, received)


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """This rank's share of the rows of the reduced ``tensor``. Arguments as for `reducescatter_async`.

    Differentiable: the gradients of all shares are gathered.
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """`reducescatter` of several tensors as one operation."""
    wires, contexts = _compressed(compression, listed(tensors))
    factors = prescale_factor, postscale_factor
    shares = _apply(_Reducescatter, name, chosen_op(op, None), factors, process_set, *wires)
    return [compression.decompress(share, context) for share, context in zip(shares, contexts)]


def _reduced(
    tensors: Sequence[Tensor],
    name: str | None,
    compression: type[Compressor],
    op: ReduceOp,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[Tensor]:
    wires, contexts = _compressed(compression, tensors)
    reduced = _apply(_Allreduce, name, op, (prescale, postscale), process_set, *wires)
    return [compression.decompress(wire, context) for wire, context in zip(reduced, contexts)]


def _compressed(compression: type[Compressor], tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Any]]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [wire for wire, _ in pairs], [context for _, context in pairs]


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


def _average(gradients: Sequence[Tensor], process_set: ProcessSet) -> list[Tensor]:
    averaged: list[Tensor] = reduce_tensors(
        gradients, Average, None, 1.0, 1.0, process_set, in_place=False
    ).wait()
    return averaged


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: ReduceOp,
        factors: tuple[float, float],
        process_set: ProcessSet,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.op, ctx.factors, ctx.process_set = op, factors, process_set
        return tuple(reduce_tensors(tensors, op, name, *factors, process_set, in_place=False).wait())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        if ctx.op not in (Average, Sum):
            raise InvalidArgument(
                f"allreduce with op={ctx.op.name} has no gradient", hint="Detach the tensor before the call."
            )
        arguments = ctx.op, None, *ctx.factors, ctx.process_set
        return None, None, None, None, *reduce_tensors(gradients, *arguments, in_place=False).wait()


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Tensor) -> tuple[Tensor, ...]:
        handle, ctx.rows = gather_tensors(tensors, name, process_set)
        ctx.process_set, ctx.shapes = process_set, [tensor.shape for tensor in tensors]
        return tuple(handle.wait())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        rank = ctx.process_set.rank()
        averaged = _average(gradients, ctx.process_set)
        own = [
            gradient.narrow(0, sum(rows[:rank]), rows[rank]).reshape(shape)
            for gradient, rows, shape in zip(averaged, ctx.rows, ctx.shapes)
        ]
        return None, None, *own


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Tensor:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        sent: Tensor = broadcast_async(tensor, root_rank, name, process_set).wait()
        return sent

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        [averaged] = _average([gradient], ctx.process_set)
        process_set = ctx.process_set
        is_root = process_set.members()[process_set.rank()] == ctx.root_rank
        return averaged if is_root else torch.zeros_like(averaged), None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, splits: Tensor | None, name: str | None, process_set: ProcessSet
    ) -> tuple[Tensor, Tensor]:
        output, received = exchange(tensor, splits, name, process_set).wait()
        ctx.received, ctx.process_set = received, process_set
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Any) -> Gradients:
        returned, _ = exchange(gradient, ctx.received, None, ctx.process_set).wait()
        return returned, None, None, None


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: ReduceOp,
        factors: tuple[float, float],
        process_set: ProcessSet,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.op, ctx.factor, ctx.process_set = op, factors[0] * factors[1], process_set
        return tuple(scatter_tensors(tensors, op, name, *factors, process_set).wait())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Gradients:
        # As in Horovod: the gradient of an average is gathered unscaled, that of a sum times the number of ranks.
        factor = ctx.factor * (ctx.process_set.size() if ctx.op == Sum else 1)
        scaled = [gradient * factor if factor != 1 else gradient for gradient in gradients]
        return None, None, None, None, *gather_tensors(scaled, None, ctx.process_set)[0].wait()
