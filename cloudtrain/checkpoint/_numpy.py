"""NumPy arrays as bytes. See `cloudtrain.checkpoint._framework.Framework`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cloudtrain.checkpoint._errors import Unsupported
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.errors import CheckpointError

# Those that mean the same on every machine.
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
    if value.dtype.name not in _DTYPES:
        raise Unsupported(f"an array of dtype {value.dtype}")
    return TensorSpec("numpy", value.dtype.name, value.dtype.itemsize, value.shape)


def identity(value: np.ndarray[Any, Any]) -> object:
    pointer = value.__array_interface__["data"][0]
    return (pointer, value.dtype, value.shape, value.strides) if value.size else None


def on_device(value: np.ndarray[Any, Any]) -> bool:
    return False


def pinned(nbytes: int) -> memoryview:
    raise NotImplementedError("NumPy knows no accelerator")


def empty(spec: TensorSpec) -> np.ndarray[Any, Any]:
    return np.empty(spec.shape, dtype=_little_endian(spec))


def within(spec: TensorSpec, memory: memoryview) -> np.ndarray[Any, Any]:
    return np.frombuffer(memory, dtype=_little_endian(spec)).reshape(spec.shape)


def memory(value: np.ndarray[Any, Any]) -> memoryview | None:
    plain = value.flags.c_contiguous and value.flags.writeable
    if not plain or value.dtype != value.dtype.newbyteorder("<"):
        return None
    return value.reshape(-1).view(np.uint8).data


def copy(
    sources: Sequence[np.ndarray[Any, Any]], targets: Sequence[np.ndarray[Any, Any]]
) -> Callable[[], None]:
    for source, target in zip(sources, targets):
        np.copyto(target, source)
    return lambda: None


def _little_endian(spec: TensorSpec) -> np.dtype[Any]:
    if spec.dtype not in _DTYPES:
        raise CheckpointError(f"the checkpoint holds an array of dtype {spec.dtype}, unknown here")
    return np.dtype(spec.dtype).newbyteorder("<")
