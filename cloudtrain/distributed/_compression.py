"""Gradient compression, written once for all frameworks."""

from __future__ import annotations

from typing import Any


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
