"""The way of a tensor that all ranks of a group reduce."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._ops import backend_op


def all_reduce(tensor: Tensor, op: ReduceOp, group: Any, *, async_op: bool = True) -> Any:
    """As ``torch.distributed.all_reduce``, but through memory between ranks of one machine."""
    memory = _state.current().memory.get(group)
    if memory is not None and memory.takes(tensor):
        return memory.all_reduce(tensor, op, async_op=async_op)
    return dist.all_reduce(tensor, backend_op(op), group, async_op=async_op)
