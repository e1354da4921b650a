"""What a rank that has joined does for those that go on: it gives zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.negotiation.messages import ADD_SET, GLOBAL, REMOVE_SET, Verdict
from cloudtrain.distributed.reduce_op import Adasum, ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._operation import all_reduce
from cloudtrain.distributed.torch._ops import dtype_name, wire_type


def launching(label: str, group: Any, op: ReduceOp, wires: Sequence[Tensor]) -> Callable[[], None]:
    """Let the others know that this rank launches an allreduce of ``wires`` without asking.

    Returns:
        What to call once it is complete.
    """
    session = _state.current()
    if group is not session.groups[GLOBAL].ordered:
        return lambda: None  # only all ranks together can join
    first, launches = wires[0], session.engine.launches
    number = launches.add(
        label, [op.name, dtype_name(first.dtype), first.device.type, [wire.numel() for wire in wires]]
    )
    return lambda: launches.complete(number)


def take_part() -> None:
    """Take part in what the other ranks have launched without asking since this one has joined."""
    session = _state.current()
    for place in session.engine.places().values():
        for spec in session.engine.launches.missing(place):
            session.engine.launches.add("join", spec)
            _give_zeros(session.groups[GLOBAL].ordered, *spec)


def stand_in(verdict: Verdict) -> None:
    """Take part in the operation of ``verdict``; runs in the order of verdicts."""
    session = _state.current()
    request = verdict.request
    assert request is not None
    if request.kind == ADD_SET:
        session.groups[verdict.own[0]] = session.open_groups(request.equal["ranks"])
    elif request.kind == REMOVE_SET:
        session.close_groups(request.equal["process set"])
    elif request.kind == "allreduce" and verdict.payload is None:
        equal, group = request.equal, session.groups[verdict.set_id].negotiated
        one = isinstance(equal["type"], str)
        types, shapes = ([equal["type"]], [equal["shape"]]) if one else (equal["type"], equal["shape"])
        sizes: dict[str, list[int]] = {}
        for name, shape in zip(types, shapes):
            sizes.setdefault(name, []).append(torch.Size(shape).numel())
        for name, numels in sizes.items():
            _give_zeros(group, equal["operation"], name, equal["device"], numels)


def _give_zeros(group: Any, op_name: str, type_name: str, device_type: str, numels: list[int]) -> None:
    """Adasum looks at each tensor; the others at the whole of a type."""
    op, dtype = ReduceOp[op_name], wire_type(getattr(torch, type_name))
    session = _state.current()
    device = session.device if device_type == "cuda" else torch.device(device_type)
    if op == Adasum:
        zeros = [torch.zeros(numel, dtype=dtype, device=device) for numel in numels]
        session.in_turn(lambda: adasum_(zeros, group, dist.get_process_group_ranks(group)))
    else:
        all_reduce(torch.zeros(sum(numels), dtype=dtype, device=device), op, group)
