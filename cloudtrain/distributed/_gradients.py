"""Common parts of the optimizers of all frameworks: the compression of gradients, and checks of options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.options import logger
from cloudtrain.distributed.reduce_op import Average, ReduceOp, warn_deprecated
from cloudtrain.observe.events import record_warning


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


def casting(
    module: str, name: str, dtype: Any, is_floating: Callable[[Any], bool], cast: Callable[[Any, Any], Any]
) -> type[Compressor]:
    """The compressor that sends floating-point tensors as ``dtype``.

    ``dtype`` is IEEE half precision, with 11 bits of significand and at most 65504; or bfloat16, which has the range of
    float32 and 8 bits of significand.

    Args:
        module: the module in which it is ``Compression.<name>``.
        cast: converts a tensor to a type.
    """

    class CastCompressor(Compressor):
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return (cast(tensor, dtype) if is_floating(tensor) else tensor), tensor.dtype

        @staticmethod
        def decompress(tensor: Any, ctx: Any) -> Any:
            return cast(tensor, ctx)

    CastCompressor.__name__ = f"{name.upper()}Compressor"
    CastCompressor.__module__, CastCompressor.__qualname__ = module, f"Compression.{name}"
    return CastCompressor


def report_different_weights(names: Sequence[str], is_first: bool, what: str, remedy: str) -> None:
    """On the first rank, warn of the parameters ``names``, whose values differ between ranks, if there are any."""
    if not names or not is_first:
        return
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    message = f"{what}: {names[0]}{more}. They stay different, because the ranks add equal steps. {remedy}"
    logger.warning("%s", message)
    record_warning(message)


def check_predivide_factor(factor: float, op: ReduceOp) -> None:
    """Raises InvalidArgument unless ``factor`` is 1 or ``op`` is Average."""
    if factor != 1.0 and op != Average:
        raise InvalidArgument("gradient_predivide_factor not supported with op != Average")


def check_passes(passes: int) -> None:
    """Raises InvalidArgument unless ``passes`` is a valid ``backward_passes_per_step``."""
    if passes < 1:
        raise InvalidArgument(f"backward_passes_per_step must be > 0, not {passes}")


def warn_num_groups(num_groups: int) -> None:
    """Emit the DeprecationWarning for ``num_groups``, if it is given."""
    if num_groups != 0:
        warn_deprecated("Parameter `num_groups` has been replaced by `groups`")
