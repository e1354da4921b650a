"""Broadcasts many tensors in flat buckets, so that a model costs few operations rather than one for each parameter."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._handle import Handle
from cloudtrain.distributed.torch._parameters import describe
from cloudtrain.distributed.torch.collectives import broadcast_async_
from cloudtrain.distributed.torch.objects import allgather_object


@dataclass(frozen=True)
class Limits:
    bucket_bytes: int
    """The size limit of a bucket."""
    large_bytes: int
    """From this size on, copying a tensor to a bucket and back costs more than its own operation."""


ON_CPU = Limits(4 << 20, 1 << 20)
"""Copies are slow, in particular to memory that is not in the cache of the CPU."""
ON_GPU = Limits(32 << 20, 16 << 20)
IN_FLIGHT = 2
"""Operations in flight: while one bucket is sent, the next one is filled. Limits the extra memory, too."""

Named = tuple[str, Tensor]


def broadcast_in_buckets(named: Iterable[Named], root_rank: int, process_set: ProcessSet) -> None:
    """Overwrite tensors with the root's. All ranks pass the same names, shapes and types in the same order."""
    in_flight: deque[Handle] = deque()
    for bucket in buckets_of(named):
        if len(in_flight) == IN_FLIGHT:
            in_flight.popleft().wait()
        in_flight.append(_start(bucket, root_rank, process_set))
    for handle in in_flight:
        handle.wait()


def same_on_all_ranks(named: Sequence[Named], root_rank: int, process_set: ProcessSet) -> bool:
    """Whether all ranks divide their tensors into the same buckets; the result is the same on all ranks.

    Raises:
        CollectiveError: the names differ. Raised on all ranks; names the first tensor that some of them lack.
    """
    what = "broadcast_parameters"
    layout = [[describe(*item) for item in bucket] for bucket in buckets_of(named)]
    digest = hashlib.sha256(repr((root_rank, layout)).encode()).hexdigest()
    if len(set(allgather_object(digest, what, process_set))) == 1:
        return True
    names_of_ranks = allgather_object([name for name, _ in named], what, process_set)
    for name in dict.fromkeys(name for names in names_of_ranks for name in names):
        lacking = [r for r, names in zip(process_set.members(), names_of_ranks) if name not in names]
        if lacking:
            raise CollectiveError(
                f"broadcast of {name}: ranks {lacking} have no tensor of this name",
                hint="Build the same model on all ranks.",
            )
    return False


def buckets_of(named: Iterable[Named]) -> list[list[Named]]:
    """Divide tensors among buckets of one type and one type of device; a large tensor gets its own.

    The result depends only on what must be the same on all ranks.
    """
    buckets: list[list[Named]] = []
    open_buckets: dict[object, tuple[list[Named], int]] = {}
    for name, tensor in named:
        if not _joinable(tensor):
            buckets.append([(name, tensor)])
            continue
        key, size = (tensor.dtype, tensor.device.type), tensor.numel() * tensor.element_size()
        bucket, used = open_buckets.get(key, ([], 0))
        if not bucket or used + size > limits(tensor).bucket_bytes:
            bucket, used = [], 0
            buckets.append(bucket)
        bucket.append((name, tensor))
        open_buckets[key] = bucket, used + size
    return buckets


def limits(tensor: Tensor) -> Limits:
    return ON_CPU if tensor.device.type == "cpu" else ON_GPU


def _joinable(tensor: Tensor) -> bool:
    strided = tensor.layout == torch.strided and not tensor.is_quantized
    return strided and tensor.numel() * tensor.element_size() < limits(tensor).large_bytes


def _start(bucket: list[Named], root_rank: int, process_set: ProcessSet) -> Handle:
    """Start to broadcast the tensors of a bucket as one; a single one is not copied."""
    first, tensor = bucket[0]
    if len(bucket) == 1:
        return broadcast_async_(tensor, root_rank, first, process_set)
    tensors = [each.detach() for _, each in bucket]
    # On one device: a copy from another GPU is cheaper than another operation.
    sizes = [each.numel() for each in tensors]
    flat = torch.empty(sum(sizes), dtype=tensor.dtype, device=tensor.device)
    parts = flat.split_with_sizes(sizes)
    views = [part.view(each.shape) for part, each in zip(parts, tensors)]
    is_root = _state.rank() == root_rank
    if is_root:
        _copy(tensors, views)

    def finish(_: Tensor) -> None:
        if not is_root:
            _copy(views, tensors)

    return broadcast_async_(flat, root_rank, f"{first} ... {bucket[-1][0]}", process_set).then(finish)


def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    with torch.inference_mode():  # they may be inference tensors
        torch._foreach_copy_(targets, sources)
