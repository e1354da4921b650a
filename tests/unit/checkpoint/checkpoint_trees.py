"""Bitwise comparison of states, and a synchronous Checkpointer."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from cloudtrain.checkpoint import Checkpointer

saver = partial(Checkpointer, asynchronous=False)


def same(left: Any, right: Any) -> bool:
    """Whether two trees have the same types, keys, order and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        keys = [(type(key), key) for key in left] == [(type(key), key) for key in right]
        return keys and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, torch.Tensor):
        return (left.dtype, left.shape) == (right.dtype, right.shape) and _bits(left) == _bits(right)
    if isinstance(left, np.ndarray):
        return (left.dtype, left.shape) == (right.dtype, right.shape) and left.tobytes() == right.tobytes()
    return repr(left) == repr(right)  # distinguishes -0.0 from 0.0, and nan equals nan


def _bits(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()
