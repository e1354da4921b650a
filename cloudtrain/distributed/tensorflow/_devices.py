"""Where tensors are reduced."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cloudtrain.distributed.errors import InvalidArgument


def checked_device(device: str) -> Any:
    """``tf.device(device)``; raises InvalidArgument for a device that this process does not have."""
    if "GPU" in device.upper() and not tf.config.list_logical_devices("GPU"):
        raise InvalidArgument(
            f"device {device!r}: TensorFlow sees no GPU in this process", hint="Leave the device out."
        )
    return tf.device(device or None)
