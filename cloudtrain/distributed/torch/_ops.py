"""Reduction of tensors: backend operations, types on the wire, and scaling."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cloudtrain.distributed.reduce_op import Average, Max, Min, Product, ReduceOp, Sum

_BACKEND_OPS = {
    Average: dist.ReduceOp.AVG,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}
_WIRE_TYPES = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
"""Types that no backend reduces, and the types that they are sent as."""


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).replace("torch.", "")


def wire_type(dtype: torch.dtype) -> torch.dtype:
    """The type that a tensor is sent as."""
    return _WIRE_TYPES.get(dtype, dtype)


def combine(must_match: dict[str, Any], payloads: Sequence[bytes | None]) -> bytes:
    """Reduce the small tensors of all ranks in order of rank: `cloudtrain.distributed.negotiation.matcher.Combine`."""
    if not any(payloads):
        return b""
    first = must_match["type"] if isinstance(must_match["type"], str) else must_match["type"][0]
    dtype = wire_type(getattr(torch, first))
    op = ReduceOp[must_match["operation"]]
    given = [torch.frombuffer(bytearray(p), dtype=dtype) for p in payloads if p is not None]
    if len(given) < len(payloads) and op not in (Average, Sum):
        given.append(torch.zeros_like(given[0]))
    total = given[0]
    for other in given[1:]:
        IN_PLACE[op](total, other)
    return total.view(torch.uint8).numpy().tobytes()


IN_PLACE = {
    Average: Tensor.add_,
    Sum: Tensor.add_,
    Min: lambda total, other: torch.minimum(total, other, out=total),
    Max: lambda total, other: torch.maximum(total, other, out=total),
    Product: Tensor.mul_,
}
"""Reduces two tensors into the first."""


def on_wire(op: ReduceOp) -> ReduceOp:
    """The operation of the backend for ``op``.

    The backend sums and the caller divides, because Gloo has no average and NCCL rounds integers differently.
    """
    return Sum if op == Average else op


def backend_op(op: ReduceOp) -> dist.ReduceOp.RedOpType:
    return _BACKEND_OPS[op]


def to_wire(tensor: Tensor, *, keep: bool) -> Tensor:
    """``tensor`` detached and contiguous, in a type that backends reduce.

    Args:
        keep: whether ``tensor`` must not change: the result then has its own memory.
    """
    wire = tensor.detach()
    if tensor.dtype in _WIRE_TYPES:
        wire = wire.to(_WIRE_TYPES[tensor.dtype])
    wire = wire.contiguous()
    return wire.clone() if keep and wire.data_ptr() == tensor.data_ptr() else wire


def scale_(tensor: Tensor, factor: float, divisor: int = 1) -> None:
    """Multiply by ``factor / divisor`` in place. Integers are rounded once, towards zero."""
    if tensor.is_floating_point() or tensor.is_complex():
        if factor != 1.0:
            tensor.mul_(factor / divisor)
        elif divisor != 1:
            tensor.div_(divisor)  # exact; multiplying by 1 / 3 would not be
    elif factor != 1.0:
        tensor.copy_(tensor.double() * factor / divisor)
    elif divisor != 1:
        tensor.div_(divisor, rounding_mode="trunc")
