"""From what callers have to what backends take, and back: contiguous arrays in this machine's byte order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudtrain.distributed.errors import InvalidArgument

Array = npt.NDArray[Any]


def plain(value: Any) -> Array:
    """``value`` as an array of numbers, without a copy where it can be had (NumPy, JAX on CPU).

    Raises:
        InvalidArgument: it is no array, or one of objects, text or dates.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"a {type(value).__name__} is no array: {error}") from error
    if array.dtype.kind not in "biufc" and not is_extension(array.dtype):
        raise InvalidArgument(
            f"arrays of type {array.dtype} cannot be sent",
            hint="Use broadcast_object or allgather_object, which pickle.",
        )
    return array


def plain_list(values: Sequence[Any]) -> list[Array]:
    """Raises InvalidArgument also for what is no list, and for an empty one."""
    if not isinstance(values, (list, tuple)) or not values:
        raise InvalidArgument("a grouped operation takes a list of at least one array")
    return [plain(value) for value in values]


def writable(value: Any) -> Array:
    """``value`` itself; raises InvalidArgument where a result cannot be written into it."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        what = "a read-only array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise InvalidArgument(
            f"the result cannot be written into {what}", hint="Use the form without _ at its end."
        )
    plain(value)
    return value


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether it is a type of number from outside NumPy: bfloat16 and others of ``ml_dtypes``."""
    return dtype.kind == "V" and dtype.names is None and dtype.type is not np.void


def to_wire(array: Array) -> Array:
    """``array`` itself where it is contiguous and in this machine's byte order, else a copy that is."""
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return array.astype(dtype, order="C", copy=False)


def from_wire(wire: Array, array: Array) -> Array:
    """A result in the type of ``array``, whose `to_wire` was given."""
    return wire.astype(array.dtype, copy=False)


def back_into(array: Array, wire: Array) -> Array:
    """``array``, which holds what is in ``wire``."""
    if wire is not array:
        array[...] = wire
    return array
