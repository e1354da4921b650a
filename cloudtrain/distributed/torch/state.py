"""The same start on every rank: parameters, optimizer state and any object, from one rank to all."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.torch import _session
from cloudtrain.distributed.torch._handle import label, reported
from cloudtrain.distributed.torch.collectives import broadcast_async_


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's ``obj``, pickled; what other ranks give as ``obj`` does not matter."""
    session = _session.current()
    box = [obj]
    with reported(label("broadcast_object", name)):
        if not session.alone:
            dist.broadcast_object_list(box, root_rank, device=session.control_device())
    return box[0]


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The ``obj`` of every rank, pickled, by rank."""
    session = _session.current()
    objects = [obj] * session.world.size
    with reported(label("allgather_object", name)):
        if not session.alone:
            dist.all_gather_object(objects, obj)
    return objects


def broadcast_parameters(
    params: Mapping[str, Tensor] | Iterable[Tensor | tuple[str, Tensor]], root_rank: int
) -> None:
    """Overwrite tensors with the root's.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()`` or ``model.parameters()``; the same
            names, shapes and order on all ranks.

    Raises:
        InvalidArgument: ``params`` holds something else than tensors.
    """
    named = sorted(params.items()) if isinstance(params, Mapping) else list(_pairs(params))
    for name, tensor in named:
        if not isinstance(tensor, Tensor):
            raise InvalidArgument(
                f"broadcast_parameters: {name} is a {type(tensor).__name__}, not a tensor",
                hint="Use broadcast_object for what is not a tensor.",
            )
    for handle in [broadcast_async_(tensor, root_rank, name) for name, tensor in named]:
        handle.wait()


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Load the root's ``optimizer.state_dict()`` on every rank.

    Tensors travel as tensors, everything else (learning rates, step counts) pickled. The state may be empty
    on some ranks, as after a restart where rank 0 alone has read the checkpoint, or on all.
    """
    if _session.current().alone:
        return
    tensors: list[Tensor] = []
    blob = b""
    if _session.rank() == root_rank:
        blob = _dump(optimizer.state_dict(), tensors)
    layout = [(tensor.shape, tensor.dtype, tensor.device.type) for tensor in tensors]
    blob, layout = broadcast_object((blob, layout), root_rank, "optimizer state")
    if _session.rank() != root_rank:
        tensors = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in layout]
    broadcast_parameters([(f"optimizer state {n}", tensor) for n, tensor in enumerate(tensors)], root_rank)
    if _session.rank() != root_rank:
        optimizer.load_state_dict(_load(blob, tensors))


def _pairs(params: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    for number, item in enumerate(params):
        yield item if isinstance(item, tuple) else (f"parameter {number}", item)


def _dump(obj: Any, tensors: list[Tensor]) -> bytes:
    """Pickle ``obj`` with its tensors left out; they are appended to ``tensors``."""

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
