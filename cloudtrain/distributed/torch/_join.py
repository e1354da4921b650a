"""``join``: a rank without data contributes zeros to the operations of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.negotiation.messages import ADD_SET, GLOBAL, REMOVE_SET, CollectiveResponse
from cloudtrain.distributed.reduce_op import Adasum, ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._handle import collective_errors
from cloudtrain.distributed.torch._operation import all_reduce
from cloudtrain.distributed.torch._ops import dtype_name, wire_type


def join(device: int = -1) -> int:
    """Signal that this rank has no more data, and wait until all ranks have joined.

    Until then this rank contributes zeros to the allreduces of the others. Other operations fail on all ranks.

    Args:
        device: ignored.

    Returns:
        The rank that joined last.
    """
    context = _state.current()
    if context.alone:
        return 0
    with collective_errors("join"):
        return context.client.join(contribute_unnegotiated)


def track_launch(label: str, group: Any, op: ReduceOp, wires: Sequence[Tensor]) -> Callable[[], None]:
    """Record an allreduce of ``wires`` launched without negotiation, so that joined ranks can take part.

    Returns:
        A function to call on completion.
    """
    context = _state.current()
    if group is not context.groups[GLOBAL].ordered:
        return lambda: None  # join is for the global process set only
    first, sequence_numbers = wires[0], context.client.sequence_numbers
    number = sequence_numbers.add(
        label, [op.name, dtype_name(first.dtype), first.device.type, [wire.numel() for wire in wires]]
    )
    return lambda: sequence_numbers.complete(number)


def contribute_unnegotiated() -> None:
    """Contribute zeros to the collectives that other ranks launched without negotiation since this rank joined."""
    context = _state.current()
    for position in context.client.positions().values():
        for spec in context.client.sequence_numbers.missing(position):
            context.client.sequence_numbers.add("join", spec)
            _contribute_zeros(context.groups[GLOBAL].ordered, *spec)


def contribute(response: CollectiveResponse) -> None:
    """Take part in a negotiated operation after this rank has joined. Called in the order of responses."""
    context = _state.current()
    request = response.request
    assert request is not None
    if request.kind == ADD_SET:
        context.groups[response.per_rank[0]] = context.open_groups(request.must_match["ranks"])
    elif request.kind == REMOVE_SET:
        context.close_groups(request.must_match["process set"])
    elif request.kind == "allreduce" and response.payload is None:
        must_match, group = request.must_match, context.groups[response.set_id].negotiated
        types, shapes = must_match["type"], must_match["shape"]
        if isinstance(types, str):
            types, shapes = [types], [shapes]
        sizes: dict[str, list[int]] = {}
        for name, shape in zip(types, shapes):
            sizes.setdefault(name, []).append(torch.Size(shape).numel())
        for name, numels in sizes.items():
            _contribute_zeros(group, must_match["operation"], name, must_match["device"], numels)


def _contribute_zeros(group: Any, op_name: str, type_name: str, device_type: str, numels: list[int]) -> None:
    """Adasum needs the separate tensors; other operations reduce all tensors of a type as one."""
    op, dtype = ReduceOp[op_name], wire_type(getattr(torch, type_name))
    context = _state.current()
    device = context.device if device_type == "cuda" else torch.device(device_type)
    if op == Adasum:
        zeros = [torch.zeros(numel, dtype=dtype, device=device) for numel in numels]
        context.run_in_thread(lambda: adasum_(zeros, group, dist.get_process_group_ranks(group)))
    else:
        all_reduce(torch.zeros(sum(numels), dtype=dtype, device=device), op, group)
