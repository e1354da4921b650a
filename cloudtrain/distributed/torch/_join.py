"""``join``: a rank without data contributes zeros to the operations of the others."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from cloudtrain.distributed.negotiation.client import JOIN_POLL_SECONDS
from cloudtrain.distributed.negotiation.messages import (
    ADD_SET,
    GLOBAL,
    OPEN_LAYER_GROUP,
    REMOVE_SET,
    CollectiveResponse,
)
from cloudtrain.distributed.reduce_op import Adasum, ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._failures import check_alive, collective_errors
from cloudtrain.distributed.torch._launches import Tracked
from cloudtrain.distributed.torch._operation import all_reduce
from cloudtrain.distributed.torch._ops import on_wire, wire_type
from cloudtrain.distributed.torch._state import Context


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
        _wait_for_launched(context)
        return context.client.join(contribute_unnegotiated)


def _wait_for_launched(context: Context) -> None:
    """Wait for what this rank has launched: joined ranks take part in it only until this one joins, too."""
    client = context.client
    while client.sequence_numbers.carried() or client.layer_numbers.carried():
        check_alive("join", context.groups[GLOBAL].ordered)
        time.sleep(JOIN_POLL_SECONDS)


def contribute_unnegotiated() -> bool:
    """Contribute zeros to the collectives that other ranks launched without negotiation since this rank joined.

    Returns:
        Whether there were any.
    """
    context = _state.current()
    found = False
    for position in context.client.positions().values():
        groups = [(context.groups[GLOBAL].ordered, position)]
        if context.layers.group is not None:  # otherwise the response that opens it has not arrived
            groups.append((context.layers.group, position["layers"]))
        for group, its_position in groups:
            numbers = context.numbers_of(group)
            assert numbers is not None
            for spec in numbers.missing(its_position):
                tracked = Tracked(context, group, numbers, numbers.add("join", spec))
                tracked.carried_by(_contribute_zeros(group, *spec))
                found = True
    return found


def contribute(response: CollectiveResponse) -> None:
    """Take part in a negotiated operation after this rank has joined. Called in the order of responses."""
    context = _state.current()
    request = response.request
    assert request is not None
    if request.kind == ADD_SET:
        context.groups[response.per_rank[0]] = context.open_groups(request.must_match["ranks"])
    elif request.kind == REMOVE_SET:
        context.close_groups(request.must_match["process set"])
    elif request.kind == OPEN_LAYER_GROUP:
        context.open_layer_group()
    elif request.kind == "allreduce" and response.payload is None:
        must_match, group = request.must_match, context.groups[response.set_id].negotiated
        op = on_wire(ReduceOp[must_match["operation"]])
        types, shapes = must_match["type"], must_match["shape"]
        if isinstance(types, str):
            types, shapes = [types], [shapes]
        sizes: dict[str, list[int]] = {}
        for name, shape in zip(types, shapes):
            sizes.setdefault(name, []).append(torch.Size(shape).numel())
        for name, numels in sizes.items():
            work = _contribute_zeros(group, op.name, name, must_match["device"], numels)
            context.launched(work, group)


def _contribute_zeros(group: Any, op_name: str, type_name: str, device_type: str, numels: list[int]) -> Any:
    """Returns the work. Adasum needs the separate tensors; other operations reduce all tensors of a type as one."""
    op, dtype = ReduceOp[op_name], wire_type(getattr(torch, type_name))
    context = _state.current()
    device = context.device if device_type == "cuda" else torch.device(device_type)
    if op == Adasum:
        zeros = [torch.zeros(numel, dtype=dtype, device=device) for numel in numels]
        return context.run_in_thread(lambda: adasum_(zeros, group, dist.get_process_group_ranks(group)))
    return all_reduce(torch.zeros(sum(numels), dtype=dtype, device=device), op, group)
