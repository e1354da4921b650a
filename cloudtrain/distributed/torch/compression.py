"""Smaller tensors on the wire."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Compressor:
    """Sends tensors as they are; the base of those that make them smaller.

    ``decompress(*compress(tensor))`` has the shape and type of ``tensor``.
    """

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """What travels, and what `decompress` needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor


class FP16Compressor(Compressor):
    """Sends floating-point tensors as IEEE half precision: 11 bits of significand, at most 65504."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return _as(tensor, torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        return tensor.to(ctx)


class BF16Compressor(FP16Compressor):
    """Sends floating-point tensors as bfloat16: the range of float32, with 8 bits of significand."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return _as(tensor, torch.bfloat16), tensor.dtype


class Compression:
    """What may be given as ``compression``; a `Compressor` of one's own may be too."""

    none = Compressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
