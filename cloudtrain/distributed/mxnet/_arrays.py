"""From MXNet's arrays to NumPy's, and back, by copies.

MXNet computes behind the script's back; a copy waits until what it reads or overwrites is ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy.typing as npt

from cloudtrain.distributed.errors import InvalidArgument

Array = npt.NDArray[Any]


def to_numpy(tensor: Any) -> Array:
    """A copy of ``tensor``. Raises InvalidArgument for a sparse one, and for what is no NDArray."""
    if not isinstance(tensor, mx.nd.NDArray):
        raise InvalidArgument(f"a {type(tensor).__name__} is no NDArray of MXNet")
    if tensor.stype != "default":
        raise InvalidArgument(
            f"a sparse array ({tensor.stype}) cannot be sent",
            hint="Use its tostype('default'); for gradients, make the layer with sparse_grad=False.",
        )
    array: Array = tensor.asnumpy()
    return array


def all_to_numpy(tensors: Sequence[Any]) -> list[Array]:
    """Raises InvalidArgument, also for what is no list."""
    if not isinstance(tensors, (list, tuple)):
        raise InvalidArgument(f"a grouped operation takes a list of arrays, not a {type(tensors).__name__}")
    return [to_numpy(tensor) for tensor in tensors]


def like(tensor: Any, array: Array) -> Any:
    """``array`` on the device of ``tensor``, for the same of MXNet's two interfaces (``nd`` or ``np``)."""
    with mx.util.np_shape(True):  # or else a dimension of 0 would mean that it is not known
        made = mx.nd.array(array, tensor.context, array.dtype)
    return made.as_np_ndarray() if isinstance(tensor, mx.np.ndarray) else made


def all_like(tensors: Sequence[Any], arrays: Sequence[Array]) -> list[Any]:
    return [like(tensor, array) for tensor, array in zip(tensors, arrays)]


def write(tensor: Any, array: Array) -> Any:
    """``tensor``, which holds what is in ``array``."""
    tensor[()] = array  # all of it, also where it has no dimension
    return tensor
