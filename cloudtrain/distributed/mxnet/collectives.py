"""Horovod's collectives on MXNet arrays. All wait for their result; on a GPU data goes by the host's memory.

Names, arguments and their order are Horovod's. What ranks are matched by, and what is raised, is told in
`cloudtrain.distributed.numpy.reductions`. ``priority`` has no meaning here: nothing overtakes what waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx

import cloudtrain.distributed.numpy as core
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.mxnet._arrays import Array, all_like, all_to_numpy, like, to_numpy, write
from cloudtrain.distributed.numpy import Average, ProcessSet, ReduceOp, global_process_set
from cloudtrain.distributed.reduce_op import chosen_op


class InvalidSplits(InvalidArgument, mx.MXNetError):  # type: ignore[misc]
    """`alltoall` cannot divide rows so. Horovod raises MXNet's error here."""


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> Any:
    """Reduce ``tensor`` over the ranks; ``tensor`` is not changed.

    Args:
        tensor: of the same shape and type on all ranks.
        average: deprecated; True is ``op=Average``, False is ``op=Sum``.
        prescale_factor: multiplied before the reduction.
        postscale_factor: multiplied after it.
        op: Average (the default), Sum, Adasum (over Gloo only), Min, Max or Product. An average of integers
            is rounded towards zero.
    """
    factors = prescale_factor, postscale_factor
    return like(tensor, _reduced([tensor], chosen_op(op, average), name, *factors, process_set)[0])


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> Any:
    """`allreduce` in place; returns ``tensor``."""
    factors = prescale_factor, postscale_factor
    return write(tensor, _reduced([tensor], chosen_op(op, average), name, *factors, process_set)[0])


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[Any]:
    """`allreduce` of several arrays as one operation."""
    factors = prescale_factor, postscale_factor
    return all_like(tensors, _reduced(tensors, chosen_op(op, average), name, *factors, process_set))


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: ReduceOp | None = None,
) -> list[Any]:
    """`allreduce_` of several arrays as one operation."""
    factors = prescale_factor, postscale_factor
    results = _reduced(tensors, chosen_op(op, average), name, *factors, process_set)
    return list(map(write, tensors, results))


def allgather(
    tensor: Any,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Join the ranks' arrays along the first dimension, which may differ between ranks."""
    return like(tensor, core.allgather(to_numpy(tensor), name=name, process_set=process_set))


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`allgather` of several arrays as one operation."""
    gathered = core.grouped_allgather(all_to_numpy(tensors), name=name, process_set=process_set)
    return all_like(tensors, gathered)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's ``tensor``; ``tensor`` is not changed.

    Args:
        tensor: of the same shape and type on all ranks.
        root_rank: a global rank of the set.
    """
    return like(tensor, core.broadcast_(to_numpy(tensor), root_rank, name=name, process_set=process_set))


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """`broadcast` in place; returns ``tensor``."""
    return write(tensor, core.broadcast_(to_numpy(tensor), root_rank, name=name, process_set=process_set))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send the first ``splits[0]`` rows of ``tensor`` to rank 0, the next ``splits[1]`` to rank 1, ...

    Args:
        splits: integers, one for each rank of the set; None divides the rows evenly.

    Returns:
        What came from all ranks, in their order; where ``splits`` were given, a pair of that and the number
        of rows that came from each rank, as an array of int32.

    Raises:
        InvalidSplits: there are not as many rows as ``splits`` say, or they cannot be divided evenly.
    """
    rows = to_numpy(splits) if isinstance(splits, mx.nd.NDArray) else splits
    array = to_numpy(tensor)
    try:
        result = core.alltoall(array, rows, name=name, process_set=process_set)
    except InvalidArgument as error:
        raise InvalidSplits(error.message, hint=error.hint) from None
    if splits is None:
        return like(tensor, result)
    received, counts = result
    return like(tensor, received), like(tensor, counts)


def reducescatter(
    tensor: Any,
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """This rank's share of the rows of the reduced ``tensor``; the first ranks get one more.

    Args:
        op: Average or Sum.
    """
    factors = prescale_factor, postscale_factor
    return grouped_reducescatter([tensor], op, name, priority, process_set, *factors)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: ReduceOp = Average,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """`reducescatter` of several arrays as one operation."""
    shares = core.grouped_reducescatter(
        all_to_numpy(tensors),
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )
    return all_like(tensors, shares)


def _reduced(
    tensors: Sequence[Any],
    op: ReduceOp,
    name: str | None,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
) -> list[Array]:
    return core.grouped_allreduce_(
        all_to_numpy(tensors),
        name=name,
        op=op,
        prescale_factor=prescale,
        postscale_factor=postscale,
        process_set=process_set,
    )
