"""Where tensors are reduced: in host memory, to which nothing moves from a GPU unless the user says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
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


def check_in_host_memory(tensors: Sequence[Any]) -> None:
    """Raises InvalidArgument for tensors that are on a GPU, or that a graph may place there.

    The device of a tensor in a graph is known only where the program has given one.
    """
    if os.environ.get(HOST_MEMORY) == "1" or not tf.config.list_logical_devices("GPU"):
        return
    if any("CPU" not in (tensor.device or "").upper() for tensor in tensors):
        raise InvalidArgument(
            "tensors of GPUs would go through host memory",
            hint=f"If that is meant, set {HOST_MEMORY}=1. To train on CPUs: "
            'tf.config.set_visible_devices([], "GPU").',
        )
