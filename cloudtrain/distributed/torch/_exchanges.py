"""Allgather and alltoall: rows exchanged between ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation.messages import CollectiveResponse, described
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.sharding import check_splits, even_splits
from cloudtrain.distributed.torch._launches import CombinedWork, Handle
from cloudtrain.distributed.torch._operation import (
    all_gather_into,
    alone,
    as_bytes,
    eager,
    from_payload,
    submit,
    to_payload,
    type_name,
)


def gather_tensors(
    tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet
) -> tuple[Handle, list[list[int]]]:
    """Start to concatenate tensors along the first dimension as one operation; the result is their list.

    Also returns, for each tensor, the number of rows of every rank, which is known once the result is.
    """
    parts = [_Part(tensor.detach().contiguous().reshape(tensor.shape or (1,))) for tensor in tensors]
    rows = [part.rows for part in parts]

    def finish() -> list[Tensor]:
        return [part.result() for part in parts]

    if alone(process_set):
        for part in parts:
            part.rows.append(part.own.shape[0])
            part.total = part.own.clone()
        return Handle("allgather", None, finish), rows

    def launch(group: Any, response: CollectiveResponse) -> Any:
        return CombinedWork(
            [part.launch(group, given) for part, given in zip(parts, zip(*response.per_rank))]
        )

    def arrived(response: CollectiveResponse) -> None:
        parts[0].arrived([given[0] for given in response.per_rank], response.payload)

    one = len(parts) == 1
    shapes = [["rows", *part.own.shape[1:]] for part in parts]
    types = [type_name(part.own) for part in parts]
    must_match = described(shapes, types, device=parts[0].own.device.type)
    handle = submit(
        "allgather",
        name,
        process_set,
        must_match,
        launch,
        finish,
        per_rank=[part.own.shape[0] for part in parts],
        payload=to_payload(parts[0].own) if one and eager(parts[0].own) else None,
        arrived=arrived,
        device=parts[0].own.device,
    )
    return handle, rows


class _Part:
    """One tensor. It is sent as bytes, so that every type of torch can be gathered."""

    def __init__(self, own: Tensor) -> None:
        self.own = own
        self.rows: list[int] = []
        self.total: Tensor | None = None
        self._chunks: list[Tensor] = []
        self._row_bytes = math.prod(own.shape[1:]) * own.element_size()

    def arrived(self, rows: Sequence[int], payload: bytes | None) -> None:
        self.rows.extend(rows)
        if payload is not None:
            self.total = from_payload(payload, self.own.dtype).reshape(sum(rows), *self.own.shape[1:])

    def launch(self, group: Any, rows: Sequence[int]) -> Any:
        self.arrived(rows, None)
        self.total = self.own.new_empty((sum(rows), *self.own.shape[1:]))
        longest = max(rows) * self._row_bytes
        if not longest:
            return CombinedWork([])
        flat = as_bytes(self.own)
        even = len(set(rows)) == 1
        if not even:
            flat = torch.cat([flat, flat.new_empty(longest - flat.numel())])
        arrivals = as_bytes(self.total) if even else flat.new_empty(longest * len(rows))
        if not even:
            self._chunks = [arrivals.narrow(0, rank * longest, longest) for rank in range(len(rows))]
        # Into one tensor, because for a list NCCL gathers into another buffer first, and copies.
        return all_gather_into(arrivals, flat, group)

    def result(self) -> Tensor:
        assert self.total is not None
        if self._chunks:
            if self.total.is_cuda:
                self._chunks[0].record_stream(torch.cuda.current_stream(self.total.device))
            arrived = zip(self._chunks, self.rows)
            torch.cat([chunk[: n * self._row_bytes] for chunk, n in arrived], out=as_bytes(self.total))
        if self.total.is_cuda:
            # allocated on another stream
            self.total.record_stream(torch.cuda.current_stream(self.total.device))
        return self.total


def exchange(tensor: Tensor, splits: Tensor | None, name: str | None, process_set: ProcessSet) -> Handle:
    """Start an alltoall. The result is the received rows, and the number from each rank as an int32 tensor."""
    is_alone = alone(process_set)
    if tensor.dim() == 0:
        raise InvalidArgument("alltoall needs a tensor with a first dimension to divide")
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

    def launch(group: Any, response: CollectiveResponse) -> Any:
        received.extend(splits[process_set.rank()] for splits in response.per_rank)
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

    must_match = described([["rows", *own.shape[1:]]], [type_name(own)], device=own.device.type)
    return submit(
        "alltoall", name, process_set, must_match, launch, finish, per_rank=given, device=own.device
    )


def _splits(tensor: Tensor, splits: Tensor | None, size: int) -> list[int]:
    rows = tensor.shape[0]
    if splits is None:
        return even_splits(rows, size)
    if splits.is_floating_point() or splits.is_complex() or splits.dim() != 1:
        raise InvalidArgument("alltoall: splits must be integers, one for each rank")
    given: list[int] = splits.tolist()
    check_splits(given, rows, size, "tensor")
    return given
