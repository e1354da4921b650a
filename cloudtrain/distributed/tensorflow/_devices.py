"""Where tensors are reduced: nothing moves from a GPU to host memory unless the user says so."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument

HOST_MEMORY = "CLOUDTRAIN_TENSORFLOW_HOST_MEMORY"
"""1 in the environment lets tensors of GPUs take the way through host memory."""


def checked_device(device: str) -> Any:
    """``tf.device(device)``; raises InvalidArgument for a device that this process does not have."""
    if "GPU" in device.upper() and not tf.config.list_logical_devices("GPU"):
        raise InvalidArgument(
            f"device {device!r}: TensorFlow sees no GPU in this process", hint="Leave the device out."
        )
    return tf.device(device or None)


def placed(tensors: Iterable[Any], device: str) -> list[Any]:
    """``tensors`` on a device that was chosen; to be called where `checked_device` is in force."""
    return [tf.identity(tensor) for tensor in tensors] if device else list(tensors)


def through_host_memory() -> bool:
    """Whether the user has said so."""
    return os.environ.get(HOST_MEMORY) == "1"


def in_host_memory(tensors: Sequence[Any]) -> bool:
    """Whether none is on a GPU. Of a tensor in a graph that is known only where the program has given a device."""
    return all("CPU" in (tensor.device or "").upper() for tensor in tensors)


def check_in_host_memory(tensors: Sequence[Any]) -> None:
    """Raises InvalidArgument for tensors that are on a GPU, or that a graph may place there."""
    if through_host_memory() or not tf.config.list_logical_devices("GPU") or in_host_memory(tensors):
        return
    raise InvalidArgument(
        "this operation would take tensors of GPUs through host memory",
        hint=f"If that is meant, set {HOST_MEMORY}=1, or give it tensors of the CPU.",
    )
