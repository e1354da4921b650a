"""``join``: a rank without data contributes zeros to the operations of the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.negotiation.client import JOIN_POLL_SECONDS, SequenceNumbers
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
from cloudtrain.distributed.torch._dead_ranks import check_alive
from cloudtrain.distributed.torch._failures import collective_errors
from cloudtrain.distributed.torch._layer_group import open_layer_group
from cloudtrain.distributed.torch._operation import all_reduce
from cloudtrain.distributed.torch._ops import dtype_name, on_wire, wire_type
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
    """Wait until what this rank launched has ended: the ranks that have joined take part until it joins, too."""
    client = context.client
    while client.sequence_numbers.carried() or client.layer_numbers.carried():
        check_alive("join", context.groups[GLOBAL].ordered)
        time.sleep(JOIN_POLL_SECONDS)


class Launch:
    """An allreduce launched without negotiation. It is complete when its work is, or when `complete` says so."""

    def __init__(
        self, context: Context, group: Any, numbers: SequenceNumbers | None, number: int = 0
    ) -> None:
        self._context, self._group, self._numbers, self._number = context, group, numbers, number

    def carried_by(self, work: Any) -> Any:
        """``work`` does it; None if it is done. Returns ``work``."""
        if work is None:
            self.complete()
            return None
        if self._numbers is not None:
            self._numbers.carry(self._number, work)
        return self._context.launched(work, self._group)

    def complete(self) -> None:
        if self._numbers is not None:
            self._numbers.complete(self._number)


def track_launch(label: str, group: Any, op: ReduceOp, wires: Sequence[Tensor]) -> Launch:
    """Record an allreduce of ``wires`` launched without negotiation, so that joined ranks can take part.

    Raises:
        CollectiveError: a rank of the group has ended.
    """
    context = _state.current()
    check_alive(label, group)
    numbers = context.numbers_of(group)  # join is for the global process set only
    if numbers is None or _is_captured(wires[0]):
        return Launch(context, group, None)
    first = wires[0]
    spec = [op.name, dtype_name(first.dtype), first.device.type, [wire.numel() for wire in wires]]
    return Launch(context, group, numbers, numbers.add(label, spec))


def _is_captured(wire: Tensor) -> bool:
    """Whether a CUDA graph is captured: then nothing runs, and a query of the GPU would be an error."""
    return wire.is_cuda and torch.cuda.is_current_stream_capturing()


def contribute_unnegotiated() -> bool:
    """Contribute zeros to the collectives that other ranks launched without negotiation since this rank joined.

    Returns:
        Whether there were any.
    """
    context = _state.current()
    found = False
    for position in context.client.positions().values():
        groups = [(context.groups[GLOBAL].ordered, position)]
        if context.layers.group is not None:  # otherwise the response that opens it is still on its way
            groups.append((context.layers.group, position["layers"]))
        for group, its_position in groups:
            numbers = context.numbers_of(group)
            assert numbers is not None
            for spec in numbers.missing(its_position):
                launch = Launch(context, group, numbers, numbers.add("join", spec))
                launch.carried_by(_contribute_zeros(group, *spec))
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
        open_layer_group(context)
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
