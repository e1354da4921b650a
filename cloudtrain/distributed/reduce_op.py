"""Reduction operations."""

from __future__ import annotations

import sys
import warnings
from enum import IntEnum
from typing import Any, NamedTuple

from cloudtrain.distributed.errors import InvalidArgument

_PACKAGE = __name__.rpartition(".")[0]


class ReduceOp(IntEnum):
    """Horovod's operations, with its values."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Adasum = ReduceOp.Adasum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product


class ScaledOp(NamedTuple):
    """A reduction, and the factors before and after it."""

    op: ReduceOp
    prescale: float = 1.0
    postscale: float = 1.0

    def arguments(self) -> dict[str, Any]:
        """As arguments of a collective."""
        return {"op": self.op, "prescale_factor": self.prescale, "postscale_factor": self.postscale}


def known_op(op: ReduceOp | int) -> ReduceOp:
    """``op`` as a ReduceOp. Raises InvalidArgument if it is unknown."""
    try:
        return ReduceOp(op)
    except ValueError:
        known = ", ".join(known.name for known in ReduceOp)
        raise InvalidArgument(f"op={op!r} is not a reduction", hint=f"Known: {known}.") from None


def chosen_op(op: ReduceOp | int | None, average: bool | None) -> ReduceOp:
    """Return ``op``, else the operation that the deprecated ``average`` selects, else Average."""
    if average is not None:
        if op is not None:
            raise InvalidArgument("The op parameter supersedes average. Please provide only one of them.")
        warn_deprecated("Parameter `average` has been replaced with `op`")
        return Average if average else Sum
    return Average if op is None else known_op(op)


def warn_deprecated(message: str) -> None:
    """Emit a DeprecationWarning, attributed to the script's line that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, DeprecationWarning, stacklevel=level)
