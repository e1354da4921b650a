"""The synchronous collectives, differentiable as in Horovod 0.28.

A gradient is reduced like its value: the backward pass runs the same collectives on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloudtrain.distributed._api import single
from cloudtrain.distributed._gradients import Compressor
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, ScaledOp, Sum, chosen_op
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

Tensors = Sequence[Tensor]


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
    """Each of ``tensors`` reduced over the ranks, as one operation. Arguments as for `grouped_allreduce_async`.

    Differentiable for Average and Sum: the gradient is reduced in the same way.
    """
    how = ScaledOp(chosen_op(op, average), prescale_factor, postscale_factor)

    def reduce(own: Tensors, name: str | None = name) -> Tensors:
        reduced: Tensors = reduce_tensors(own, how, name, process_set, in_place=False).wait()
        return reduced

    def reduce_too(gradients: Tensors) -> Tensors:
        if how.op not in (Average, Sum):
            raise InvalidArgument(
                f"allreduce with op={how.op.name} has no gradient", hint="Detach the tensor before the call."
            )
        return reduce(gradients, None)

    return _differentiable(reduce, reduce_too, listed(tensors), compression)


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """All ranks' tensors concatenated along the first dimension. Arguments as for `grouped_allgather_async`.

    Differentiable: the gradient is averaged over ranks, and each rank takes its rows.
    """
    tensors = listed(tensors)
    shapes, rows_of_ranks = [tensor.shape for tensor in tensors], []

    def gather(own: Tensors) -> Tensors:
        handle, rows = gather_tensors(own, name, process_set)
        gathered: Tensors = handle.wait()
        rows_of_ranks.extend(rows)
        return gathered

    def take(gradients: Tensors) -> Tensors:
        rank, averaged = process_set.rank(), _average(gradients, process_set)
        return [
            gradient.narrow(0, sum(rows[:rank]), rows[rank]).reshape(shape)
            for gradient, rows, shape in zip(averaged, rows_of_ranks, shapes)
        ]

    return _differentiable(gather, take, tensors)


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The root's ``tensor``. The others pass a tensor of its shape, which is not changed.

    Differentiable: on the root the gradient is averaged over ranks, on the other ranks it is zero.
    """

    def send(own: Tensors) -> Tensors:
        return [broadcast_async(own[0], root_rank, name, process_set).wait()]

    def give_back(gradients: Tensors) -> Tensors:
        [averaged] = _average(gradients, process_set)
        is_root = process_set.members()[process_set.rank()] == root_rank
        return [averaged if is_root else torch.zeros_like(averaged)]

    return _differentiable(send, give_back, [tensor])[0]


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
    received: list[Tensor] = []

    def send(own: Tensors) -> Tensors:
        output, counts = exchange(own[0], splits, name, process_set).wait()
        received.append(counts)
        return [output]

    def send_back(gradients: Tensors) -> Tensors:
        return [exchange(gradients[0], received[0], None, process_set).wait()[0]]

    [output] = _differentiable(send, send_back, [tensor])
    return output if splits is None else (output, received[0])


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """This rank's shares of the rows of the reduced ``tensors``. Arguments as for `grouped_reducescatter_async`.

    Differentiable: the gradients of all shares are gathered.
    """
    tensors = listed(tensors)
    how = ScaledOp(chosen_op(op, None), prescale_factor, postscale_factor)

    def scatter(own: Tensors) -> Tensors:
        shares: Tensors = scatter_tensors(own, how, name, process_set).wait()
        return shares

    def gather(gradients: Tensors) -> Tensors:
        # As in Horovod: the gradient of an average is gathered unscaled, that of a sum times the number of ranks.
        factor = prescale_factor * postscale_factor * (process_set.size() if how.op == Sum else 1)
        scaled = [gradient * factor if factor != 1 else gradient for gradient in gradients]
        gathered: Tensors = gather_tensors(scaled, None, process_set)[0].wait()
        return gathered

    return _differentiable(scatter, gather, tensors, compression)


allreduce = single(grouped_allreduce)
allgather = single(grouped_allgather)
reducescatter = single(grouped_reducescatter)


def _average(gradients: Tensors, process_set: ProcessSet) -> list[Tensor]:
    averaged: list[Tensor] = reduce_tensors(
        gradients, ScaledOp(Average), None, process_set, in_place=False
    ).wait()
    return averaged


Collective = Callable[[Tensors], Tensors]
"""Waits for a collective of tensors, and returns its results."""


def _differentiable(
    forward: Collective,
    backward: Collective,
    tensors: Tensors,
    compression: type[Compressor] = Compression.none,
) -> list[Tensor]:
    """The results of ``forward``; ``backward`` maps their gradients to the gradients of ``tensors``."""
    pairs = [compression.compress(tensor) for tensor in tensors]
    apply: Any = _Differentiable.apply
    results = apply(forward, backward, *(wire for wire, _ in pairs))
    return [compression.decompress(result, context) for result, (_, context) in zip(results, pairs)]


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Collective, backward: Collective, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.collective = backward
        return tuple(forward(tensors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.collective(gradients)
