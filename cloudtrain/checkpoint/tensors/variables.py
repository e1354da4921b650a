"""Keras and TensorFlow variables and MXNet arrays as bytes: they are saved as NumPy arrays.

Restoring them therefore needs none of these packages: it gives NumPy arrays, or fills existing variables. An
implementation of `cloudtrain.checkpoint.tensors.framework.Framework`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cloudtrain.checkpoint.tensors import numpy as arrays
from cloudtrain.checkpoint.tensors.framework import LocalShards, TensorSpec
from cloudtrain.errors import CheckpointError

within = arrays.within


def owns(value: Any) -> bool:
    return isinstance(value, _kinds())


def spec(value: Any) -> TensorSpec:
    return arrays.spec(_array(value))


def identity(value: Any) -> object:
    return id(value)


def address(value: Any) -> int | None:
    return None


def on_device(value: Any) -> bool:
    return False


def pinned(nbytes: int) -> memoryview:
    raise NotImplementedError("frameworks copy their variables themselves")


def empty(spec: TensorSpec) -> np.ndarray[Any, Any]:
    return arrays.empty(spec)


def memory(value: Any) -> memoryview | None:
    return None


def copy(sources: Sequence[Any], targets: Sequence[np.ndarray[Any, Any]]) -> Callable[[], None]:
    return arrays.copy([_array(source) for source in sources], targets)


def put(source: np.ndarray[Any, Any], target: Any, index: tuple[Any, ...]) -> None:
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


def sharded(value: Any) -> LocalShards | None:
    return None


def _kinds() -> tuple[type, ...]:
    """The types of the imported packages; another module of the same name is ignored."""
    names = (("keras", "Variable"), ("tensorflow", "Variable"), ("tensorflow", "Tensor"))
    found = [getattr(sys.modules.get(module), name, None) for module, name in names]
    found.append(getattr(getattr(sys.modules.get("mxnet"), "nd", None), "NDArray", None))
    return tuple(kind for kind in found if isinstance(kind, type))


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A view or a copy. bfloat16, which NumPy lacks, becomes float32, which represents it exactly."""
    array = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else _on_host(value))
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _on_host(value: Any) -> Any:
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(value, keras.Variable):
        return keras.ops.convert_to_numpy(value)
    return value.numpy()
