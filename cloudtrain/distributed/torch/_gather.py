"""Tensors of differing first dimension, gathered on every rank."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.torch import _session
from cloudtrain.distributed.torch._handle import Handle, reported

_MOST_DIMENSIONS = 15


def exchange_shapes(tensor: Tensor, label: str) -> list[list[int]]:
    """The shape of ``tensor`` on every rank, by rank.

    Raises:
        CollectiveError: the ranks disagree in more than the first dimension; every rank raises it.
    """
    session = _session.current()
    if session.alone:
        return [list(tensor.shape)]
    own = torch.zeros(1 + _MOST_DIMENSIONS, dtype=torch.int64)
    own[: 1 + tensor.dim()] = torch.tensor([tensor.dim(), *tensor.shape])
    own = own.to(session.control_device())
    records = [torch.empty_like(own) for _ in range(session.world.size)]
    with reported(label):
        dist.all_gather(records, own)
    shapes = [record[1 : 1 + record[0]] for record in (row.tolist() for row in records)]
    if any(shape[1:] != shapes[0][1:] or len(shape) != len(shapes[0]) for shape in shapes):
        listed = ", ".join(f"rank {rank}: {tuple(shape)}" for rank, shape in enumerate(shapes))
        raise CollectiveError(
            f"{label}: shapes may differ in the first dimension only, but are {listed}",
            hint="Give the same tensor on all ranks.",
        )
    return shapes


def gather(tensor: Tensor, label: str) -> tuple[Handle, list[int]]:
    """Start a gather along the first dimension; also the rows that each rank gives.

    Every type travels as bytes, so that all that torch can hold can be gathered.
    """
    session = _session.current()
    own = tensor.detach().contiguous().reshape(tensor.shape or (1,))
    shapes = exchange_shapes(own, label)
    rows = [shape[0] for shape in shapes]
    total = own.clone() if session.alone else own.new_empty((sum(rows), *own.shape[1:]))
    if session.alone or total.numel() == 0:
        return Handle(label, None, lambda: total), rows

    row_bytes = math.prod(own.shape[1:]) * own.element_size()
    longest = max(rows) * row_bytes
    even = len(set(rows)) == 1
    padded = (
        as_bytes(own) if even else torch.cat([as_bytes(own), _bytes(longest - as_bytes(own).numel(), own)])
    )
    arrivals = as_bytes(total) if even else _bytes(longest * len(rows), own)
    chunks = [arrivals.narrow(0, rank * longest, longest) for rank in range(len(rows))]
    with reported(label):
        work: Any = dist.all_gather(chunks, padded, async_op=True)

    def finish() -> Tensor:
        if not even:
            torch.cat([chunk[: n * row_bytes] for chunk, n in zip(chunks, rows)], out=as_bytes(total))
        return total

    return Handle(label, work, finish), rows


def as_bytes(tensor: Tensor) -> Tensor:
    """A flat view of a contiguous tensor's memory."""
    return tensor.reshape(-1).view(torch.uint8)


def _bytes(count: int, like: Tensor) -> Tensor:
    return torch.empty(count, dtype=torch.uint8, device=like.device)
