"""NumPy arrays as bytes, and the variables and arrays of Keras, TensorFlow and MXNet, which are saved as NumPy arrays.

Restoring those therefore needs none of these packages: it gives NumPy arrays, or fills existing variables.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cloudtrain.checkpoint.errors import Unsupported
from cloudtrain.checkpoint.tensors.framework import Framework, TensorSpec
from cloudtrain.errors import CheckpointError

Array = np.ndarray[Any, Any]

# The dtypes that mean the same on every machine.
_DTYPES = {
    "bool",
    "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
    "complex64", "complex128",
}  # fmt: skip


class NumpyArrays(Framework):
    def owns(self, value: Any) -> bool:
        return type(value) is np.ndarray

    def spec(self, value: Array) -> TensorSpec:
        return _spec(value.dtype, value.shape)

    def identity(self, value: Array) -> object:
        return (_pointer(value), value.dtype, value.shape, value.strides) if value.size else None

    def address(self, value: Array) -> int | None:
        if not value.flags.c_contiguous or not _is_little_endian(value.dtype):
            return None
        return _pointer(value) if value.size else 0

    def empty(self, spec: TensorSpec) -> Array:
        return np.empty(spec.shape, dtype=_little_endian(spec))

    def within(self, spec: TensorSpec, memory: memoryview) -> Array:
        return np.frombuffer(memory, dtype=_little_endian(spec)).reshape(spec.shape)

    def memory(self, value: Array) -> memoryview | None:
        plain = value.flags.c_contiguous and value.flags.writeable and _is_little_endian(value.dtype)
        return value.reshape(-1).view(np.uint8).data if plain else None

    def copy(self, sources: Sequence[Array], targets: Sequence[Array]) -> Callable[[], None]:
        for source, target in zip(sources, targets):
            np.copyto(target, source)
        return lambda: None

    def put(self, source: Array, target: Array, index: tuple[Any, ...]) -> None:
        np.copyto(target[index], source)


class Variables(NumpyArrays):
    """Keras and TensorFlow variables, TensorFlow tensors and MXNet arrays. The frameworks copy them themselves."""

    def owns(self, value: Any) -> bool:
        return isinstance(value, _kinds())

    def spec(self, value: Any) -> TensorSpec:
        return super().spec(_array(value))

    def identity(self, value: Any) -> object:
        return id(value)

    def address(self, value: Any) -> int | None:
        return None

    def memory(self, value: Any) -> memoryview | None:
        return None

    def copy(self, sources: Sequence[Any], targets: Sequence[Array]) -> Callable[[], None]:
        return super().copy([_array(source) for source in sources], targets)

    def put(self, source: Array, target: Any, index: tuple[Any, ...]) -> None:
        """Raises CheckpointError for a tensor that cannot be assigned, such as a ``tf.Tensor``."""
        array = np.array(_array(target))
        array[index] = source
        if hasattr(target, "asnumpy"):
            target[:] = array
        elif hasattr(target, "assign"):
            target.assign(array)
        else:
            raise CheckpointError(
                f"a {type(target).__name__} cannot be filled", hint="Pass the Variable itself in into."
            )


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


def _kinds() -> tuple[type, ...]:
    """The types of the imported packages; another module of the same name is ignored."""
    names = (("keras", "Variable"), ("tensorflow", "Variable"), ("tensorflow", "Tensor"))
    found = [getattr(sys.modules.get(module), name, None) for module, name in names]
    found.append(getattr(getattr(sys.modules.get("mxnet"), "nd", None), "NDArray", None))
    return tuple(kind for kind in found if isinstance(kind, type))


def _array(value: Any) -> Array:
    """A view or a copy. bfloat16, which NumPy lacks, becomes float32, which represents it exactly."""
    array = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else _on_host(value))
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _on_host(value: Any) -> Any:
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(value, keras.Variable):
        return keras.ops.convert_to_numpy(value)
    return value.numpy()
