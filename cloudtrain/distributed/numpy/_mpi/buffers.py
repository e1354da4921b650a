"""Arrays as MPI takes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cloudtrain.distributed.negotiation.messages import CollectiveRequest
from cloudtrain.distributed.numpy._arrays import Array
from cloudtrain.distributed.numpy._reduction import reduce_in_order, working_type
from cloudtrain.distributed.reduce_op import Average, ReduceOp, Sum


class Buckets:
    """Arrays side by side, in one flat buffer for each type in which they are reduced.

    Args:
        share: let an array that is alone in its buffer, and of its type, be that buffer.
    """

    def __init__(self, arrays: Sequence[Array], *, share: bool) -> None:
        by_type: dict[np.dtype[Any], list[int]] = {}
        for number, array in enumerate(arrays):
            by_type.setdefault(working_type(array.dtype.name), []).append(number)
        parts: dict[int, Array] = {}
        self.flats: list[Array] = []
        for dtype, numbers in by_type.items():
            flat = _joined([arrays[number].reshape(-1) for number in numbers], dtype, share=share)
            self.flats.append(flat)
            offset = 0
            for number in numbers:
                array = arrays[number]
                parts[number] = flat[offset : offset + array.size].reshape(array.shape)
                offset += array.size
        self.parts = [parts[number] for number in range(len(arrays))]
        """Where each array is in its buffer, in its shape."""


def _joined(flats: list[Array], dtype: np.dtype[Any], *, share: bool) -> Array:
    if len(flats) == 1:
        return flats[0].astype(dtype, copy=not share)
    return np.concatenate(flats, dtype=dtype, casting="unsafe")


def zeros_for(equal: dict[str, Any]) -> list[Array]:
    """The buffers of a rank that takes part in an allreduce it has not asked for."""
    shapes, types = equal["shape"], equal["type"]
    if isinstance(types, str):
        shapes, types = [shapes], [types]
    sizes: dict[np.dtype[Any], int] = {}
    for shape, name in zip(shapes, types):
        dtype = working_type(name)
        sizes[dtype] = sizes.get(dtype, 0) + math.prod(shape)
    return [np.zeros(size, dtype) for dtype, size in sizes.items()]


def words(array: Array) -> Array:
    """The memory of a contiguous array, flat, as integers that are as long as can be.

    MPI counts in 32 bits; it reads no numbers here, so that any type can travel.
    """
    length = math.gcd(array.itemsize, 8)
    return array.reshape(-1).view(f"u{length}")


def words_per_row(array: Array) -> int:
    return math.prod(array.shape[1:]) * array.itemsize // math.gcd(array.itemsize, 8)


def combine(request: CollectiveRequest, own: Sequence[Any], payloads: Sequence[bytes | None]) -> bytes:
    """The result of an operation whose data came along (see `cloudtrain.distributed.negotiation.matcher`)."""
    if request.kind in ("broadcast", "allgather"):  # of a broadcast, only the root gives any
        return b"".join(payload or b"" for payload in payloads)
    types = request.must_match["type"]
    dtype = working_type(types if isinstance(types, str) else types[0])  # all are of one working type
    op = ReduceOp[request.must_match["operation"]]
    given = [np.frombuffer(payload, dtype) for payload in payloads if payload is not None]
    if len(given) < len(payloads) and op not in (Average, Sum):
        given.append(np.zeros_like(given[0]))
    return reduce_in_order(op, given).tobytes()
