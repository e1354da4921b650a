"""Starts operations on tensors: negotiated by name, or in an order that the script guarantees."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.negotiation.messages import EAGER_BYTES, CollectiveResponse
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import ReduceOp
from cloudtrain.distributed.torch import _state
from cloudtrain.distributed.torch._launches import Handle, record_end
from cloudtrain.distributed.torch._ops import backend_op, dtype_name
from cloudtrain.observe.timeline.recorder import Operation

Launch = Callable[[Any, CollectiveResponse], Any]
"""Starts the transfer, given the process group and the response."""

_same_order = contextvars.ContextVar("same_order", default=False)


def submit(
    kind: str,
    name: str | None,
    process_set: ProcessSet,
    must_match: dict[str, Any],
    launch: Launch,
    finish: Callable[[], Any],
    *,
    per_rank: Any = None,
    payload: bytes | None = None,
    arrived: Callable[[CollectiveResponse], None] | None = None,
    device: torch.device | None = None,
) -> Handle:
    """Request an operation from all ranks of ``process_set``: see `NegotiationClient.negotiate`.

    Args:
        launch: starts the transfer, unless the response carries the result.
        finish: returns the result; called by the thread that waits for it.
        device: the device of the tensors.
    """
    context = _state.current()
    set_id = context.set_id(process_set)
    group = context.groups[set_id].negotiated
    ready = _Ready(device)

    def transfer(response: CollectiveResponse, operation: Operation | None) -> Any:
        with ready.stream():
            work = context.launched(launch(group, response), group)
            if operation is not None:
                record_end(operation, work, group, device, launch)
        return work

    pending, operation = context.client.negotiate(
        kind, name, set_id, must_match, transfer, per_rank=per_rank, payload=payload, arrived=arrived
    )
    return Handle(pending.request.label, pending, finish, operation)


def alone(process_set: ProcessSet) -> bool:
    """Whether the process set has only this rank. Raises NotInitialized, InvalidArgument."""
    context = _state.current()
    context.set_id(process_set)
    return process_set.size() == 1


def root_of(root_rank: int, process_set: ProcessSet) -> int:
    """``root_rank``, a global rank. Raises NotInitialized, or InvalidArgument if it is not in the process set."""
    members = process_set.members() if _state.current() else []
    root_rank = int(root_rank)
    if root_rank not in members:
        raise InvalidArgument(f"root_rank {root_rank} is not one of the ranks {members}")
    return root_rank


def eager(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.numel() * tensor.element_size() <= EAGER_BYTES


def type_name(tensor: Tensor) -> str:
    return dtype_name(tensor.dtype)


def as_bytes(tensor: Tensor) -> Tensor:
    """A flat view of a contiguous tensor's memory."""
    # as_strided, because reshape keeps any stride of a single element
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def to_payload(tensor: Tensor) -> bytes:
    return as_bytes(tensor).numpy().tobytes() if tensor.numel() else b""


def from_payload(payload: bytes | None, dtype: torch.dtype) -> Tensor:
    """The inverse of `to_payload`, as a flat tensor."""
    if not payload:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(payload), dtype=dtype)


class _Ready:
    """Orders another thread's CUDA stream after the caller's current stream. Does nothing without a GPU."""

    def __init__(self, device: torch.device | None) -> None:
        self._device = device if device is not None and device.type == "cuda" else None
        if self._device is not None:
            self._event = torch.cuda.current_stream(self._device).record_event()

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        if self._device is None:
            yield
            return
        with torch.cuda.device(self._device), torch.cuda.stream(_side_stream(self._device)):
            torch.cuda.current_stream().wait_event(self._event)
            yield


_side_streams: dict[torch.device, Any] = {}


def _side_stream(device: torch.device) -> Any:
    if device not in _side_streams:
        _side_streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _side_streams[device]


def group_of(process_set: ProcessSet) -> dist.ProcessGroup:
    """The process group for collectives that all ranks of the set launch in the same order, without negotiation."""
    context = _state.current()
    group: dist.ProcessGroup = context.groups[context.set_id(process_set)].ordered
    return group


def uses_nccl(group: Any, device: torch.device) -> bool:
    """Whether NCCL carries out operations of ``group`` on ``device``. NCCL can average, and scatter a sum."""
    return device.type == "cuda" and "cuda:nccl" in dist.get_backend_config(group)


def all_reduce(tensor: Tensor, op: ReduceOp, group: Any, *, async_op: bool = True) -> Any:
    """Like ``torch.distributed.all_reduce``, but through shared memory between the ranks of one machine.

    ``Average`` is for NCCL (see `uses_nccl`); for others see `on_wire`.
    """
    memory = _state.current().memory.get(group)
    if memory is not None and memory.supports(tensor):
        return memory.all_reduce(tensor, op, async_op=async_op)
    return dist.all_reduce(tensor, backend_op(op), group, async_op=async_op)


def all_gather_into(output: Tensor, tensor: Tensor, group: Any) -> Any:
    """Start to gather the flat ``tensor`` of every rank into the flat ``output``; returns the work."""
    # The name is new in torch 2.13, and the old one warns.
    gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return gather(output, tensor, group=group, async_op=True)


def reduce_scatter_into(output: Tensor, tensor: Tensor, group: Any) -> Any:
    """Start to sum the flat ``tensor`` over the ranks, and give each its part in ``output``; returns the work."""
    scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return scatter(output, tensor, group=group, async_op=True)


class same_order:
    """A block in which all ranks call the same allreduces and broadcasts, on the same tensors in the same order.

    These calls need no negotiation, like those of `DistributedOptimizer`, and are as fast as plain
    ``torch.distributed``. If the ranks do not keep to the same order, the consequences are those of
    ``torch.distributed`` too: wrong sums, an abort, or an error after the timeout. Other collectives are negotiated
    in this block as well. Horovod has no counterpart.

        with hvd.same_order():
            for tensor in tensors:
                hvd.allreduce_(tensor)
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _same_order.set(True)

    def __exit__(self, *_: object) -> None:
        _same_order.reset(self._token)


def in_same_order() -> bool:
    """Whether this thread is in a `same_order` block."""
    return _same_order.get()
