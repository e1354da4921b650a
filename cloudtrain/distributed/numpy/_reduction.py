"""How ranks' arrays become one: the operations, and scaling for every type of number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._arrays import Array, is_extension
from cloudtrain.distributed.reduce_op import Adasum, Max, Min, Product, ReduceOp, known_op

_WORKING_TYPES = {"bool": "uint8", "float16": "float32", "bfloat16": "float32"}
"""Types that neither MPI nor C reduces, and what they are reduced as."""


def checked_op(op: ReduceOp | int, arrays: Sequence[Array]) -> ReduceOp:
    """Raises InvalidArgument for what is no operation, or none for these types of number."""
    op = known_op(op)
    for dtype in {array.dtype for array in arrays}:
        if is_extension(dtype) and dtype.name != "bfloat16":
            raise InvalidArgument(
                f"arrays of type {dtype} cannot be reduced", hint="Convert them to bfloat16."
            )
        if dtype.kind == "b" and op not in (Min, Max, Product):
            raise InvalidArgument(
                f"{op.name} of bool has no meaning",
                hint="Use Max for any, Min for all, or convert the array to an integer type.",
            )
        if dtype.kind == "c" and op in (Min, Max, Adasum):
            raise InvalidArgument(f"complex numbers have no {op.name}")
        if dtype.kind in "biu" and op == Adasum:
            raise InvalidArgument("Adasum is for floating-point arrays")
    return op


def working_type(name: str) -> np.dtype[Any]:
    """The type in which arrays of the type called ``name`` are reduced."""
    return np.dtype(_WORKING_TYPES.get(name, name))


def scale(array: Array, factor: float, divisor: int = 1) -> None:
    """Multiply in place by ``factor / divisor``; integers are rounded towards zero, once."""
    if array.dtype.kind in "fc":
        if factor != divisor:
            array *= factor / divisor
    elif factor != 1.0:
        array[...] = (array.astype(np.float64) * factor / divisor).astype(array.dtype)
    elif divisor != 1:
        wide = array.astype(np.result_type(array, np.min_scalar_type(divisor)), copy=False)
        array[...] = (wide - np.fmod(wide, divisor)) // divisor  # fmod has the sign of the array, as in C


def reduce_in_order(op: ReduceOp, arrays: Sequence[Array]) -> Array:
    """One array of several, always in the same order, so that the bits are the same whoever computes it."""
    function = {Min: np.minimum, Max: np.maximum, Product: np.multiply}.get(op, np.add)
    total = arrays[0].copy()
    for array in arrays[1:]:
        function(total, array, out=total)
    return total
