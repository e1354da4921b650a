"""Variables of Keras and TensorFlow and arrays of MXNet as bytes: they are saved as the NumPy arrays that they hold.

So restoring them needs none of these packages: a new one is a NumPy array, and one that is there is filled. See
`cloudtrain.checkpoint._framework.Framework`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cloudtrain.checkpoint import _numpy
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.errors import CheckpointError

within = _numpy.within


def owns(value: Any) -> bool:
    return isinstance(value, _kinds())


def spec(value: Any) -> TensorSpec:
    return _numpy.spec(_array(value))


def identity(value: Any) -> object:
    return id(value)


def address(value: Any) -> int | None:
    return None


def on_device(value: Any) -> bool:
    return False


def pinned(nbytes: int) -> memoryview:
    raise NotImplementedError("variables are copied by their frameworks")


def empty(spec: TensorSpec) -> np.ndarray[Any, Any]:
    return _numpy.empty(spec)


def memory(value: Any) -> memoryview | None:
    return None


def copy(sources: Sequence[Any], targets: Sequence[np.ndarray[Any, Any]]) -> Callable[[], None]:
    return _numpy.copy([_array(source) for source in sources], targets)


def put(source: np.ndarray[Any, Any], target: Any, index: tuple[Any, ...]) -> None:
    """Raises CheckpointError for a tensor that is no variable."""
    array = np.array(_array(target))
    array[index] = source
    if hasattr(target, "asnumpy"):
        target[:] = array
    elif hasattr(target, "assign"):
        target.assign(array)
    else:
        raise CheckpointError(
            f"a {type(target).__name__} cannot be filled", hint="Give the Variable itself in into."
        )


def _kinds() -> tuple[type, ...]:
    """Of the packages that are imported. None where another module has such a name."""
    names = (("keras", "Variable"), ("tensorflow", "Variable"), ("tensorflow", "Tensor"))
    found = [getattr(sys.modules.get(module), name, None) for module, name in names]
    found.append(getattr(getattr(sys.modules.get("mxnet"), "nd", None), "NDArray", None))
    return tuple(kind for kind in found if isinstance(kind, type))


def _array(value: Any) -> np.ndarray[Any, Any]:
    """A view or a copy; bfloat16, which NumPy lacks, as float32, which holds all of its values."""
    array = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else _on_host(value))
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _on_host(value: Any) -> Any:
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(value, keras.Variable):
        return keras.ops.convert_to_numpy(value)
    return value.numpy()
