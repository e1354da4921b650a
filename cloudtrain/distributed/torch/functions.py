"""Functions on models and metrics: broadcasts of parameters and optimizer state, and averages of metrics."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed.errors import CollectiveError, InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._gradients.parameters import describe
from cloudtrain.distributed.torch._launches import Handle
from cloudtrain.distributed.torch._operation import alone, root_of
from cloudtrain.distributed.torch._state import global_process_set
from cloudtrain.distributed.torch.collectives import allreduce_, broadcast_async_
from cloudtrain.distributed.torch.objects import allgather_object, broadcast_object

__all__ = [
    "average_metrics",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


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


def broadcast_parameters(
    params: Mapping[str, Tensor] | Iterable[Tensor | tuple[str, Tensor]],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite tensors with the root's.

    Tensors of one type are sent together in buckets of up to 32 MiB (4 MiB on the CPU), and large ones on their own,
    without a copy. At most two buckets exist at a time.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()`` or ``model.parameters()``; the same
            names, shapes and order on all ranks.

    Raises:
        InvalidArgument: ``params`` contains something other than tensors.
        CollectiveError: names, shapes or types differ between ranks. Raised on all ranks; names a parameter.
    """
    named = sorted(params.items()) if isinstance(params, Mapping) else list(_pairs(params))
    for name, tensor in named:
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(
                f"broadcast_parameters: {name} is a {type(tensor).__name__}, not a tensor",
                hint="Use broadcast_object for what is not a tensor.",
            )
    root_rank = root_of(root_rank, process_set)
    if alone(process_set):
        return
    if same_on_all_ranks(named, root_rank, process_set):
        broadcast_in_buckets(named, root_rank, process_set)
        return
    # Broadcast by name, one by one: either only the order differs, or the error can name a tensor.
    for handle in [broadcast_async_(tensor, root_rank, name, process_set) for name, tensor in named]:
        handle.wait()


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Load the root's ``optimizer.state_dict()`` on every rank.

    Tensors are broadcast as tensors, everything else (learning rates, step counts) is pickled. The state may be empty
    on some ranks, as after a restart in which only rank 0 has read the checkpoint, or on all.

    Args:
        model: ignored; Horovod needs it for some optimizers.

    Raises:
        InvalidArgument: the optimizer is LBFGS, whose state differs between ranks.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgument(
            "cannot broadcast torch.optim.LBFGS state", hint="Each rank has its own history."
        )
    if not optimizer.state:
        # As in Horovod, the parameters of a new optimizer get gradients: scripts rely on it.
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    if alone(process_set):
        return
    tensors: list[Tensor] = []
    blob = b""
    if _state.rank() == root_rank:
        blob = _dump(optimizer.state_dict(), tensors)
    layout = [(tensor.shape, tensor.dtype, tensor.device.type) for tensor in tensors]
    blob, layout = broadcast_object((blob, layout), root_rank, None, process_set)
    if _state.rank() != root_rank:
        tensors = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in layout]
    named = [(f"optimizer state {n}", tensor) for n, tensor in enumerate(tensors)]
    broadcast_in_buckets(named, root_rank, process_set)
    if _state.rank() != root_rank:
        optimizer.load_state_dict(_load(blob, tensors))


def _pairs(params: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    for number, item in enumerate(params):
        yield item if isinstance(item, tuple) else (f"parameter {number}", item)


def _dump(obj: Any, tensors: list[Tensor]) -> bytes:
    """Pickle ``obj`` without its tensors, which are appended to ``tensors``."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> int | None:
            if not isinstance(item, Tensor):
                return None
            tensors.append(item)
            return len(tensors) - 1

    buffer = io.BytesIO()
    Pickler(buffer).dump(obj)
    return buffer.getvalue()


def _load(blob: bytes, tensors: list[Tensor]) -> Any:
    """The inverse of `_dump`."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, number: int) -> Tensor:
            return tensors[number]

    return Unpickler(io.BytesIO(blob)).load()


def average_metrics(
    metrics: Mapping[str, float | Tensor],
    weight: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> dict[str, float]:
    """The weighted mean of each metric over the ranks, in one collective; the same bits on all ranks.

    Decisions based on it, such as a step of ``ReduceLROnPlateau`` or early stopping, are the same on all ranks too::

        means = hvd.average_metrics({"loss": loss, "accuracy": right / seen}, weight=seen)
        scheduler.step(means["loss"])

    Reading a metric waits for the GPU that computes it, so call this once per epoch rather than at every step.

    Args:
        metrics: numbers or one-element tensors by name; the same names on all ranks.
        weight: the number of samples behind this rank's metrics. With 0 their values are ignored.

    Returns:
        The sum of weight * metric over the sum of the weights, in the order of ``metrics``; nan if all weights are 0.

    Raises:
        InvalidArgument: the weight is negative or nan. Also a ValueError.
    """
    if not weight >= 0:
        raise InvalidArgument(f"average_metrics: weight is {weight}", hint="It is a number of samples.")
    names = sorted(metrics)
    values = [weight * torch.as_tensor(metrics[name]).item() if weight else 0.0 for name in names]
    sums = torch.tensor([weight, *values], dtype=torch.float64)
    allreduce_(sums, name=f"metrics {', '.join(names)}", op=Sum, process_set=process_set)
    means = dict(zip(names, (sums[1:] / sums[0]).tolist()))
    return {name: means[name] for name in metrics}


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
    """Divide tensors among buckets, each for one data type and one device type; a large tensor gets its own.

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
    # All on one device, because a copy from another GPU is cheaper than another operation.
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
