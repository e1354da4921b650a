"""Alltoall: every rank sends some of its rows to every other."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed._rows import check_splits, even_splits
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation.messages import Verdict
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._operation import alone, as_bytes, submit, type_name


def exchange(tensor: Tensor, splits: Tensor | None, name: str | None, process_set: ProcessSet) -> Handle:
    """Start it; the result is the rows received, and how many from each rank as an int32 tensor."""
    is_alone = alone(process_set)
    if tensor.dim() == 0:
        raise InvalidArgument("alltoall needs a tensor with a first dimension, which it divides")
    size = process_set.size()
    given = _splits(tensor, splits, size)
    own = tensor.detach().contiguous()
    received: list[int] = []
    output: list[Tensor] = []

    def finish() -> tuple[Tensor, Tensor]:
        if output[0].is_cuda:
            output[0].record_stream(torch.cuda.current_stream(output[0].device))
        device = splits.device if splits is not None else None
        return output[0], torch.tensor(received, dtype=torch.int32, device=device)

    if is_alone:
        received.append(own.shape[0])
        output.append(own.clone())
        return Handle("alltoall", None, finish)

    def launch(group: Any, verdict: Verdict) -> Any:
        received.extend(splits[process_set.rank()] for splits in verdict.own)
        output.append(own.new_empty((sum(received), *own.shape[1:])))
        row_bytes = math.prod(own.shape[1:]) * own.element_size()
        return dist.all_to_all_single(
            as_bytes(output[0]),
            as_bytes(own),
            [rows * row_bytes for rows in received],
            [rows * row_bytes for rows in given],
            group,
            async_op=True,
        )

    equal = {"shape": ["rows", *own.shape[1:]], "type": type_name(own), "device": own.device.type}
    return submit("alltoall", name, process_set, equal, launch, finish, own=given, device=own.device)


def _splits(tensor: Tensor, splits: Tensor | None, size: int) -> list[int]:
    rows = tensor.shape[0]
    if splits is None:
        return even_splits(rows, size)
    if splits.is_floating_point() or splits.is_complex() or splits.dim() != 1:
        raise InvalidArgument("alltoall: splits have to be integers, one for each rank")
    given: list[int] = splits.tolist()
    check_splits(given, rows, size, "tensor")
    return given
