"""Smaller gradients on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np


class Compressor:
    """Sends arrays as they are; the base of those that make them smaller.

    ``decompress(*compress(tensor))`` has the shape and type of ``tensor``, an NDArray.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What travels, and what `decompress` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point arrays as IEEE half precision: 11 bits of significand, at most 65504."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        is_float = np.dtype(tensor.dtype).kind == "f"
        return tensor.astype("float16") if is_float else tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor.astype(ctx)


class Compression:
    """What may be given as ``compression``; a `Compressor` of one's own may be too."""

    none = Compressor
    fp16 = FP16Compressor
