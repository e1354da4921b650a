"""Horovod's collectives on torch tensors: asynchronous or in place, and not differentiable.

Ranks may call them in different orders: calls are matched by kind and ``name``, or by their order if they have no name.
Results are the same on all ranks, bit for bit. All functions raise NotInitialized before ``init``, and InvalidArgument
(also a ValueError) for invalid arguments or a name that is in flight. Waiting for a result raises CollectiveError if
the ranks disagree on shape, type, operation or a factor, if a rank died, or if a rank did not call in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed._api import same_arguments, single, synchronous
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation.messages import CollectiveResponse
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Average, ReduceOp, ScaledOp, Sum, chosen_op
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._exchanges import exchange, gather_tensors
from cloudtrain.distributed.torch._launches import Handle, launch
from cloudtrain.distributed.torch._operation import (
    alone,
    as_bytes,
    eager,
    from_payload,
    group_of,
    in_same_order,
    root_of,
    submit,
    to_payload,
    type_name,
)
from cloudtrain.distributed.torch._reductions import plain, reduce_now_, reduce_tensors, scatter_tensors
from cloudtrain.distributed.torch._state import global_process_set

__all__ = [
    "allgather_async",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall_async",
    "barrier",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "grouped_allgather_async",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter_async",
    "poll",
    "reducescatter_async",
    "sparse_allreduce_async",
    "synchronize",
]


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous collective and return its result."""
    if not isinstance(handle, Handle):
        raise InvalidArgument(f"synchronize takes the handle of an asynchronous collective, not {handle!r}")
    return handle.wait()


def poll(handle: Handle) -> bool:
    """Whether `synchronize` would return immediately."""
    return handle.done()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until every rank of the set has called it."""
    if not alone(process_set):
        submit("barrier", None, process_set, {}, lambda group, response: None, lambda: None).wait()


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce each of ``tensors`` over the ranks, as one operation, without changing them.

    Args:
        tensors: of the same shapes and types on all ranks.
        average: deprecated; True is ``op=Average``, False is ``op=Sum``.
        op: Average (the default), Sum, Adasum, Min, Max or Product. An average of integers is rounded towards zero.
        prescale_factor: factor before the reduction.
        postscale_factor: factor after the reduction.
    """
    return _reduce(tensors, average, name, op, prescale_factor, postscale_factor, process_set)


@same_arguments(grouped_allreduce_async)
def grouped_allreduce_async_(tensors: Sequence[Tensor], *args: Any, **options: Any) -> Handle:
    """`grouped_allreduce_async` in place; do not use ``tensors`` before `synchronize`."""
    return _reduce(tensors, *args, **options, in_place=True)


def _reduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
) -> Handle:
    how = ScaledOp(chosen_op(op, average), prescale_factor, postscale_factor)
    return reduce_tensors(listed(tensors), how, name, process_set, in_place=in_place)


allreduce_async = single(grouped_allreduce_async)
allreduce_async_ = single(grouped_allreduce_async_)


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduce ``tensor`` over the ranks in place. Arguments as for `grouped_allreduce_async`."""
    if in_same_order() and prescale_factor == postscale_factor == 1.0 and process_set.size() > 1:
        op = chosen_op(op, average)
        if plain(tensor, op):
            return reduce_now_(tensor, op, name, group_of(process_set))
    factors = prescale_factor, postscale_factor
    result: Tensor = allreduce_async_(tensor, average, name, op, *factors, process_set).wait()
    return result


grouped_allreduce_ = synchronous(grouped_allreduce_async_)


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start to concatenate all ranks' tensors along the first dimension, in order of rank, as one operation.

    Only the first dimension may differ between ranks. A tensor without dimensions counts as one row.
    """
    return gather_tensors(listed(tensors), name, process_set)[0]


allgather_async = single(grouped_allgather_async)


def broadcast_async(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to send the root's ``tensor`` to all ranks. The others pass a tensor of its shape, which is not changed.

    Args:
        root_rank: a global rank, also with a process set.
    """
    copy = tensor.detach().clone(memory_format=torch.contiguous_format)
    return broadcast_async_(copy, root_rank, name, process_set)


def broadcast_async_(
    tensor: Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """`broadcast_async` in place; do not use ``tensor`` before `synchronize`."""
    root_rank = root_of(root_rank, process_set)
    wire = tensor.detach().contiguous()

    def finish() -> Tensor:
        if wire.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(wire)
        return tensor

    if alone(process_set):
        return Handle("broadcast", None, finish)

    def transfer(group: Any, _: CollectiveResponse | None = None) -> Any:
        return dist.broadcast(as_bytes(wire), root_rank, group, async_op=True) if wire.numel() else None

    if in_same_order():
        label, group = f"broadcast of {name or 'a tensor'}", group_of(process_set)
        return launch(label, group, lambda _: transfer(group), [[wire]], finish, kind="broadcast", name=name)

    def arrived(response: CollectiveResponse) -> None:
        if _state.rank() == root_rank or not wire.numel():
            return
        with torch.inference_mode():  # the mode is per thread, and the tensor may be an inference tensor
            wire.copy_(from_payload(response.payload, wire.dtype).reshape(wire.shape))

    must_match = {
        "root_rank": root_rank,
        "shape": list(tensor.shape),
        "type": type_name(tensor),
        "device": tensor.device.type,
    }
    root = _state.rank() == root_rank
    payload = (to_payload(wire) if root else b"") if eager(wire) else None
    return submit(
        "broadcast",
        name,
        process_set,
        must_match,
        transfer,
        finish,
        payload=payload,
        arrived=arrived,
        device=wire.device,
    )


broadcast_ = synchronous(broadcast_async_)


def alltoall_async(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to send the first ``splits[0]`` rows of ``tensor`` to rank 0, the next ``splits[1]`` to rank 1, ...

    Args:
        tensor: of the same type and shape on all ranks, except for the first dimension.
        splits: integers, one for each rank of the set; None divides the rows evenly.

    Returns:
        A handle. Its result is the rows from all ranks, in order; with ``splits`` a pair of these rows and the number
        of rows from each rank.
    """
    if splits is not None and not isinstance(splits, Tensor):
        splits = torch.tensor(splits, dtype=torch.int32)
    handle = exchange(tensor, splits, name, process_set)
    return handle.then(lambda pair: pair[0]) if splits is None else handle


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start to reduce each of ``tensors`` over the ranks and give each rank its share of the rows, as one operation.

    Rows are divided as evenly as possible; the first ranks get one more.

    Args:
        op: Average or Sum.
    """
    tensors, how = listed(tensors), ScaledOp(chosen_op(op, None), prescale_factor, postscale_factor)
    return scatter_tensors(tensors, how, name, process_set)


reducescatter_async = single(grouped_reducescatter_async)


def listed(tensors: Any) -> list[Tensor]:
    """``tensors`` as a list. Raises InvalidArgument if it is not a list of tensors."""
    if isinstance(tensors, Tensor) or not tensors:
        raise InvalidArgument("a grouped operation takes a list of at least one tensor")
    return list(tensors)


def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None = None,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce a sparse COO tensor over the ranks: indices and values are gathered and added.

    Args:
        tensor: of the same shape and type on all ranks; the number of values may differ.
        op: Average or Sum.

    Raises:
        InvalidArgument: the tensor is not sparse, or ``op`` is another one.
    """
    if not tensor.is_sparse:
        raise InvalidArgument("sparse_allreduce_async needs a sparse COO tensor", hint="Use allreduce.")
    if op not in (Average, Sum):
        raise InvalidArgument(f"op={op!r} is not supported for sparse tensors", hint="Average or Sum.")
    size = process_set.size()
    compact = tensor.detach().coalesce()
    handle, _ = gather_tensors([compact.indices().t(), compact.values()], name, process_set)

    def add_up(gathered: list[Tensor]) -> Tensor:
        indices, values = gathered
        if op == Average:
            values = values / size
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False).coalesce()

    return handle.then(add_up)
