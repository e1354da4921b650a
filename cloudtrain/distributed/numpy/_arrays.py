"""Conversion between the arrays of the caller and the arrays of the backends, and arithmetic on them.

A backend takes contiguous arrays of numbers in native byte order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.reduce_op import Adasum, Max, Min, Product, ReduceOp, known_op

Array = npt.NDArray[Any]

_ACCUMULATORS = {"bool": "uint8", "float16": "float32", "bfloat16": "float32"}
"""Types that neither MPI nor C can reduce, and the types used in their place."""


def as_array(value: Any) -> Array:
    """Return ``value`` as an array of numbers, without a copy where possible (NumPy, JAX on CPU).

    Raises:
        InvalidArgument: ``value`` is not an array, or holds objects, text or dates.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgument(f"{type(value).__name__} is not an array: {error}") from error
    if array.dtype.kind not in "biufc" and not is_extension(array.dtype):
        raise InvalidArgument(
            f"arrays of type {array.dtype} cannot be sent",
            hint="Use broadcast_object or allgather_object, which pickle.",
        )
    return array


def as_arrays(values: Sequence[Any]) -> list[Array]:
    """Apply `as_array` to every value. Raises InvalidArgument unless ``values`` is a non-empty list or tuple."""
    if not isinstance(values, (list, tuple)) or not values:
        raise InvalidArgument("a grouped operation takes a list of at least one array")
    return [as_array(value) for value in values]


def writable(value: Any) -> Array:
    """Return ``value``. Raises InvalidArgument if a result cannot be written into it."""
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        what = "a read-only array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise InvalidArgument(
            f"the result cannot be written into {what}", hint="Use the form without the trailing underscore."
        )
    as_array(value)
    return value


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` is a number type from outside NumPy, such as bfloat16 from ``ml_dtypes``."""
    return dtype.kind == "V" and dtype.names is None and dtype.type is not np.void


def to_wire(array: Array) -> Array:
    """Return ``array`` itself if it is contiguous and in native byte order, else such a copy."""
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return array.astype(dtype, order="C", copy=False)


def from_wire(wire: Array, array: Array) -> Array:
    """Convert a result to the type of ``array``, the caller's input."""
    return wire.astype(array.dtype, copy=False)


def copy_back(array: Array, wire: Array) -> Array:
    """Copy ``wire`` into ``array``, and return ``array``."""
    if wire is not array:
        array[...] = wire
    return array


def checked_op(op: ReduceOp | int, arrays: Sequence[Array]) -> ReduceOp:
    """Return ``op``. Raises InvalidArgument if it is unknown or undefined for one of the types."""
    op = known_op(op)
    for dtype in {array.dtype for array in arrays}:
        if is_extension(dtype) and dtype.name != "bfloat16":
            raise InvalidArgument(
                f"arrays of type {dtype} cannot be reduced", hint="Convert them to bfloat16."
            )
        if dtype.kind == "b" and op not in (Min, Max, Product):
            raise InvalidArgument(
                f"{op.name} is not defined for bool",
                hint="Use Max for any, Min for all, or convert the array to an integer type.",
            )
        if dtype.kind == "c" and op in (Min, Max, Adasum):
            raise InvalidArgument(f"{op.name} is not defined for complex numbers")
        if dtype.kind in "biu" and op == Adasum:
            raise InvalidArgument("Adasum takes floating-point arrays only")
    return op


def accumulator_type(name: str) -> np.dtype[Any]:
    """Return the type in which arrays of type ``name`` are reduced."""
    return np.dtype(_ACCUMULATORS.get(name, name))


def scale(array: Array, factor: float, divisor: int = 1) -> None:
    """Multiply ``array`` in place by ``factor / divisor``. Integers are rounded towards zero, once."""
    if array.dtype.kind in "fc":
        if factor != divisor:
            array *= factor / divisor
    elif factor != 1.0:
        array[...] = (array.astype(np.float64) * factor / divisor).astype(array.dtype)
    elif divisor != 1:
        wide = array.astype(np.result_type(array, np.min_scalar_type(divisor)), copy=False)
        array[...] = (wide - np.fmod(wide, divisor)) // divisor  # fmod keeps the sign of the array, as in C


def reduce_in_order(op: ReduceOp, arrays: Sequence[Array]) -> Array:
    """Reduce ``arrays`` in the given order: the result is the same, bit for bit, on every rank."""
    function = {Min: np.minimum, Max: np.maximum, Product: np.multiply}.get(op, np.add)
    total = arrays[0].copy()
    for array in arrays[1:]:
        function(total, array, out=total)
    return total
