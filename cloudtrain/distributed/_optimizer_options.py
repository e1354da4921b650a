"""Validation of the options that the optimizers of all frameworks share."""

from __future__ import annotations

import warnings

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.reduce_op import Average, ReduceOp


def check_predivide_factor(factor: float, op: ReduceOp) -> None:
    """Raises InvalidArgument."""
    if factor != 1.0 and op != Average:
        raise InvalidArgument("gradient_predivide_factor not supported with op != Average")


def check_passes(passes: int) -> None:
    """Raises InvalidArgument unless ``passes`` is a valid ``backward_passes_per_step``."""
    if passes < 1:
        raise InvalidArgument(f"backward_passes_per_step must be > 0, not {passes}")


def warn_num_groups(num_groups: int) -> None:
    """Emit the DeprecationWarning for ``num_groups``, attributed to the caller of the calling function."""
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=3
        )
