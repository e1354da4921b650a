"""Common parts of the optimizers of all frameworks: the compression of gradients, and checks of options."""

from __future__ import annotations

import warnings
from typing import Any

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.reduce_op import Average, ReduceOp


class Compressor:
    """Sends tensors unchanged. Base class of all compressors.

    ``decompress(*compress(tensor))`` returns a tensor with the shape and type of ``tensor``.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send and the context that `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Restore the type recorded in ``ctx``."""
        return tensor


class CastCompressor(Compressor):
    """Sends floating-point tensors in a shorter type. A framework supplies the cast."""

    dtype: Any
    """The type to send."""

    @staticmethod
    def is_floating(tensor: Any) -> bool:
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return (cls.cast(tensor, cls.dtype) if cls.is_floating(tensor) else tensor), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return cls.cast(tensor, ctx)


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
