"""Smaller tensors on the wire."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """Sends tensors as they are; the base of those that make them smaller.

    ``decompress(*compress(tensor))`` has the shape and type of ``tensor``.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What travels, and what `decompress` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as IEEE half precision: 11 bits of significand, at most 65504."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _as(tensor, tf.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx)


class BF16Compressor(FP16Compressor):
    """Sends floating-point tensors as bfloat16: the range of float32, with 8 bits of significand."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _as(tensor, tf.bfloat16), tensor.dtype


class Compression:
    """What may be given as ``compression``; a `Compressor` of one's own may be too."""

    none = Compressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def _as(tensor: Any, dtype: Any) -> Any:
    return tf.cast(tensor, dtype) if tensor.dtype.is_floating else tensor
