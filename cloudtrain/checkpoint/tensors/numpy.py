"""NumPy arrays as bytes, an implementation of `cloudtrain.checkpoint.tensors.framework.Framework`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cloudtrain.checkpoint.errors import Unsupported
from cloudtrain.checkpoint.tensors.framework import LocalShards, TensorSpec
from cloudtrain.errors import CheckpointError

# The dtypes that mean the same on every machine.
_DTYPES = {
    "bool",
    "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
    "complex64", "complex128",
}  # fmt: skip


def owns(value: Any) -> bool:
    return type(value) is np.ndarray


def spec(value: np.ndarray[Any, Any]) -> TensorSpec:
    return _spec(value.dtype, value.shape)


def identity(value: np.ndarray[Any, Any]) -> object:
    return (_pointer(value), value.dtype, value.shape, value.strides) if value.size else None


def address(value: np.ndarray[Any, Any]) -> int | None:
    if not value.flags.c_contiguous or not _is_little_endian(value.dtype):
        return None
    return _pointer(value) if value.size else 0


def on_device(value: np.ndarray[Any, Any]) -> bool:
    return False


def pinned(nbytes: int) -> memoryview:
    raise NotImplementedError("NumPy arrays are never on an accelerator")


def empty(spec: TensorSpec) -> np.ndarray[Any, Any]:
    return np.empty(spec.shape, dtype=_little_endian(spec))


def within(spec: TensorSpec, memory: memoryview) -> np.ndarray[Any, Any]:
    return np.frombuffer(memory, dtype=_little_endian(spec)).reshape(spec.shape)


def memory(value: np.ndarray[Any, Any]) -> memoryview | None:
    plain = value.flags.c_contiguous and value.flags.writeable and _is_little_endian(value.dtype)
    if not plain:
        return None
    return value.reshape(-1).view(np.uint8).data


def copy(
    sources: Sequence[np.ndarray[Any, Any]], targets: Sequence[np.ndarray[Any, Any]]
) -> Callable[[], None]:
    for source, target in zip(sources, targets):
        np.copyto(target, source)
    return lambda: None


def put(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], index: tuple[Any, ...]) -> None:
    np.copyto(target[index], source)


def sharded(value: Any) -> LocalShards | None:
    return None


@functools.lru_cache(maxsize=4096)  # a state has thousands of arrays of a few shapes
def _spec(dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorSpec:
    if dtype.name not in _DTYPES:
        raise Unsupported(f"an array of dtype {dtype}")
    return TensorSpec("numpy", dtype.name, dtype.itemsize, shape)


@functools.cache
def _is_little_endian(dtype: np.dtype[Any]) -> bool:
    return dtype == dtype.newbyteorder("<")


def _pointer(value: np.ndarray[Any, Any]) -> int:
    pointer: int = value.__array_interface__["data"][0]
    return pointer


def _little_endian(spec: TensorSpec) -> np.dtype[Any]:
    if spec.dtype not in _DTYPES:
        raise CheckpointError(f"the checkpoint holds an array of the unknown dtype {spec.dtype}")
    return np.dtype(spec.dtype).newbyteorder("<")
