"""The Gloo backend: arrays as tensors on the same memory, over `cloudtrain.distributed.torch`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cloudtrain.distributed.torch as hvd
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._backend import (
    Array,
    Arrays,
    Backend,
    Exchanged,
    Handle,
    Results,
    copy_back,
    is_extension,
)
from cloudtrain.distributed.process_set import ProcessSet
from cloudtrain.distributed.reduce_op import ScaledOp
from cloudtrain.distributed.torch._reductions import reduce_tensors
from cloudtrain.distributed.torch._state import current

_TYPES = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    )
    if hasattr(torch, name)
}
_CARRIERS = {1: ("uint8", torch.uint8), 2: ("int16", torch.int16)}
"""Integer types for sending number types from outside NumPy, by item size in bytes."""
_WIDER = {"bool": "uint8", "uint16": "int32", "uint32": "int64"}
"""Types that Gloo cannot reduce, and types that hold all their values."""


class GlooBackend(Backend):
    """`Backend` on ``torch.distributed``. Reuses the ranks of `cloudtrain.distributed.torch` if it is initialized."""

    name = "gloo"

    def __init__(self, start_timeout: float | None, timeout: float | None) -> None:
        self._owns_context = not hvd.is_initialized()
        hvd.init(backend="gloo", start_timeout=start_timeout, timeout=timeout)
        super().__init__(current().world, current().client.objects)

    def _register(self, process_set: ProcessSet) -> None:
        hvd.add_process_set(process_set)

    def _unregister(self, process_set: ProcessSet, set_id: int) -> None:
        hvd.remove_process_set(process_set)

    def join(self) -> int:
        return hvd.join()

    def close(self) -> None:
        if self._owns_context:
            hvd.shutdown()

    def barrier(self, process_set: ProcessSet) -> None:
        hvd.barrier(process_set)

    def allreduce(
        self,
        arrays: Arrays,
        how: ScaledOp,
        name: str | None,
        process_set: ProcessSet,
        *,
        in_place: bool,
        must_match: Mapping[str, Any] | None = None,
    ) -> Results:
        wires = [_reducible(array) for array in arrays]
        handle = reduce_tensors(
            _tensors(wires), how, name, process_set, in_place=in_place, must_match=must_match
        )

        def finish(tensors: list[Tensor]) -> list[Array]:
            if not in_place:
                return _arrays(tensors, arrays)
            return [copy_back(array, wire) for array, wire in zip(arrays, wires)]

        return Handle(handle, finish)

    def allgather(self, arrays: Arrays, name: str | None, process_set: ProcessSet) -> Results:
        handle = hvd.grouped_allgather_async(_tensors(arrays), name, process_set)
        return Handle(handle, lambda tensors: _arrays(tensors, arrays))

    def broadcast(
        self, array: Array, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Handle[Array]:
        return Handle(
            hvd.broadcast_async_(_tensor(array), root_rank, name, process_set), lambda tensor: array
        )

    def alltoall(
        self, array: Array, splits: Sequence[int], name: str | None, process_set: ProcessSet
    ) -> Exchanged:
        handle = hvd.alltoall_async(_tensor(array), splits, name, process_set)
        return Handle(handle, lambda pair: (_array(pair[0], array.dtype), pair[1].tolist()))

    def reducescatter(
        self, arrays: Arrays, how: ScaledOp, name: str | None, process_set: ProcessSet
    ) -> Results:
        tensors = _tensors(map(_reducible, arrays))
        handle = hvd.grouped_reducescatter_async(
            tensors, name, how.op, process_set, how.prescale, how.postscale
        )
        return Handle(handle, lambda results: _arrays(results, arrays))


def _reducible(array: Array) -> Array:
    """Convert ``array`` to a type that Gloo reduces. Raises InvalidArgument if no such type holds all values."""
    if array.dtype == np.uint64:
        raise InvalidArgument("Gloo does not reduce uint64", hint="Convert to int64, or use backend='mpi'.")
    return array.astype(_WIDER.get(array.dtype.name, array.dtype), copy=False)


def _tensors(arrays: Iterable[Array]) -> list[Tensor]:
    return [_tensor(array) for array in arrays]


def _tensor(array: Array) -> Tensor:
    """A tensor on the same memory. Raises InvalidArgument if torch lacks the type."""
    dtype = _TYPES.get(array.dtype.name)
    if dtype is None:
        raise InvalidArgument(
            f"arrays of type {array.dtype} cannot be sent over Gloo",
            hint="Convert them, or use backend='mpi'.",
        )
    if is_extension(array.dtype):
        array = array.view(_CARRIERS[array.dtype.itemsize][0])
    # torch warns about read-only memory; here the memory is only read
    tensor: Tensor = torch.from_numpy(array if array.flags.writeable else np.asarray(_Unlocked(array)))
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


class _Unlocked:
    """Presents a read-only array as writable (NumPy's array interface, version 3)."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _arrays(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> list[Array]:
    return [_array(tensor, array.dtype) for tensor, array in zip(tensors, arrays)]


def _array(tensor: Tensor, dtype: np.dtype[Any]) -> Array:
    """The inverse of `_tensor`."""
    if not is_extension(dtype):
        return tensor.numpy().astype(dtype, copy=False)
    return tensor.view(_CARRIERS[dtype.itemsize][1]).numpy().view(dtype)
