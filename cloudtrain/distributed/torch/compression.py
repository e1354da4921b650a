"""Gradient compression for tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from cloudtrain.distributed._gradients import Compressor, casting


class Compression:
    """The built-in compressors. ``compression`` also accepts any other subclass of `Compressor`."""

    none = Compressor
    fp16 = casting(__name__, "fp16", torch.float16, Tensor.is_floating_point, Tensor.to)
    bf16 = casting(__name__, "bf16", torch.bfloat16, Tensor.is_floating_point, Tensor.to)
