"""Broadcasts and gathers Python objects."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed._objects import purpose_of
from cloudtrain.distributed.negotiation.messages import EAGER_BYTES, CollectiveResponse
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._exchanges import gather_tensors
from cloudtrain.distributed.torch._operation import alone, root_of, submit
from cloudtrain.distributed.torch._state import global_process_set

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_object_fn",
]


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's ``obj``, pickled. The other ranks' ``obj`` is ignored."""
    root_rank = root_of(root_rank, process_set)
    if alone(process_set):
        return obj
    is_root = _state.rank() == root_rank
    objects = _state.current().client.objects
    purpose = purpose_of("broadcast_object", name, root_rank)
    blob = _Blob(objects.pack(obj, purpose) if is_root else memoryview(b""))

    def launch(group: Any, response: CollectiveResponse) -> Any:
        blob.size = response.per_rank[process_set.members().index(root_rank)]
        return dist.broadcast(blob.tensor(), root_rank, group, async_op=True)

    return submit(
        "broadcast",
        name,
        process_set,
        {"root_rank": root_rank, "type": "object"},
        launch,
        lambda: obj if is_root else objects.unpack(blob.read(), purpose),
        per_rank=len(blob.sent),
        payload=bytes(blob.sent) if len(blob.sent) <= EAGER_BYTES else None,
        arrived=blob.arrived,
    ).wait()


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """`broadcast_object` with all arguments but the object bound."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Every rank's ``obj``, pickled, in order of rank."""
    objects = _state.current().client.objects
    purposes = [purpose_of("allgather_object", name, rank) for rank in process_set.members()]
    blob = torch.frombuffer(objects.pack(obj, purposes[process_set.rank()]), dtype=torch.uint8)
    handle, _ = gather_tensors([blob.to(_state.current().control_device())], name, process_set)
    [gathered] = handle.wait()
    return objects.unpack_all(gathered.cpu().numpy().data, purposes)


class _Blob:
    """Bytes whose length is known only to one rank at first."""

    def __init__(self, sent: memoryview) -> None:
        self.sent = sent
        self.size = len(sent)
        self._tensor: Tensor | None = None
        self._received = b""

    def tensor(self) -> Tensor:
        """The tensor that the backend sends or fills."""
        flat = (
            torch.frombuffer(self.sent, dtype=torch.uint8)
            if self.sent
            else torch.empty(self.size, dtype=torch.uint8)
        )
        self._tensor = flat.to(_state.current().control_device())
        return self._tensor

    def arrived(self, response: CollectiveResponse) -> None:
        self._received = response.payload or b""

    def read(self) -> Any:
        """The bytes, without a copy if they are in host memory."""
        return self._received if self._tensor is None else self._tensor.cpu().numpy().data
