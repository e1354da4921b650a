"""Gradient compression for tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cloudtrain.distributed._gradients import CastCompressor, Compressor


class FP16Compressor(CastCompressor):
    """Sends floating-point tensors as IEEE half precision: 11 bits of significand, at most 65504."""

    dtype = torch.float16

    @staticmethod
    def is_floating(tensor: Tensor) -> bool:
        return tensor.is_floating_point()

    @staticmethod
    def cast(tensor: Tensor, dtype: Any) -> Tensor:
        return tensor.to(dtype)


class BF16Compressor(FP16Compressor):
    """Sends floating-point tensors as bfloat16: the range of float32, with 8 bits of significand."""

    dtype = torch.bfloat16


class Compression:
    """The built-in compressors. ``compression`` also accepts any other subclass of `Compressor`."""

    none = Compressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
