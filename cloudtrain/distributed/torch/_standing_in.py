"""What a rank that has joined does for those that go on: it gives zeros."""

from __future__ import annotations

import torch
import torch.distributed as dist

from cloudtrain.distributed._control import Verdict
from cloudtrain.distributed._control.messages import ADD_SET, REMOVE_SET
from cloudtrain.distributed.torch import _session
from cloudtrain.distributed.torch._adasum import adasum_
from cloudtrain.distributed.torch._reduce import zeros_like_request
from cloudtrain.distributed.torch._reduction import Adasum, ReduceOp, backend_op


def stand_in(verdict: Verdict) -> None:
    """Take part in the operation of ``verdict``; runs in the order of verdicts, and waits for nobody."""
    session = _session.current()
    request = verdict.request
    assert request is not None
    if request.kind == ADD_SET:
        session.groups[verdict.own[0]] = session.open_groups(request.equal["ranks"])
    elif request.kind == REMOVE_SET:
        session.groups.pop(request.equal["process set"])
    elif request.kind == "allreduce" and verdict.payload is None:
        equal, group = request.equal, session.groups[verdict.set_id].negotiated
        device = torch.device(equal["device"])
        op = ReduceOp[equal["operation"]]
        for zeros in zeros_like_request(equal, device):
            if op == Adasum:
                adasum_([zeros], group, dist.get_process_group_ranks(group))
            else:
                dist.all_reduce(zeros, backend_op(op), group, async_op=True)
