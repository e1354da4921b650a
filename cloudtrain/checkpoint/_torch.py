"""Torch tensors as bytes. See `cloudtrain.checkpoint._framework.Framework`."""

from __future__ import annotations

from typing import Any

import torch

from cloudtrain.checkpoint._errors import Unsupported
from cloudtrain.checkpoint._framework import TensorSpec
from cloudtrain.errors import CheckpointError


def owns(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def spec(value: torch.Tensor) -> TensorSpec:
    # A subclass may hold more than its elements, or only this rank's part of them.
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise Unsupported(f"a {type(value).__name__}, not a plain tensor")
    if value.layout is not torch.strided or value.is_quantized or value.is_meta:
        raise Unsupported("a sparse, quantized or meta tensor")
    return TensorSpec("torch", _name(value.dtype), value.element_size(), tuple(value.shape))


def identity(value: torch.Tensor) -> object:
    if not value.numel():
        return None
    layout = (value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
    return (value.device, value.data_ptr(), *layout)


def dump(value: torch.Tensor) -> memoryview:
    return _bytes_of(value.detach().resolve_conj().resolve_neg().cpu().contiguous())


def load(spec: TensorSpec, data: memoryview) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(
            f"the checkpoint holds a tensor of dtype {spec.dtype}, which torch {torch.__version__} lacks",
            hint="Upgrade torch to restore it.",
        )
    tensor = torch.empty(spec.shape, dtype=dtype)
    _bytes_of(tensor)[:] = data
    return tensor


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    # Not reshape: it leaves the stride of a single element, which view refuses.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8).numpy().data


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
