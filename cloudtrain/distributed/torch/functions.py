"""Functions on models and metrics: parameters and optimizer state from one rank to all, averages of metrics."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import Sum
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._broadcasts import broadcast_in_buckets, same_on_all_ranks
from cloudtrain.distributed.torch._operation import alone, root_of
from cloudtrain.distributed.torch._state import global_process_set
from cloudtrain.distributed.torch.collectives import allreduce_, broadcast_async_
from cloudtrain.distributed.torch.objects import broadcast_object

__all__ = [
    "average_metrics",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


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
    # By name and one by one: only the order differs, or there is a tensor for an error to name.
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
