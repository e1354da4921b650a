"""A GPU that TensorFlow says it has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import tensorflow as tf


@contextmanager
def a_gpu_for_keras() -> Iterator[None]:
    """TensorFlow says that the machine has a GPU, when it is asked for devices of all kinds. Only Keras does that."""
    real = tf.config.list_physical_devices

    def devices(kind: str | None = None) -> list[Any]:
        return [*real(kind), *([] if kind else [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")])]

    with mock.patch.object(tf.config, "list_physical_devices", devices):
        yield


@contextmanager
def a_gpu_for_tensors() -> Iterator[None]:
    """TensorFlow says that tensors may be on a GPU."""
    real = tf.config.list_logical_devices

    def devices(kind: str | None = None) -> list[Any]:
        return [tf.config.LogicalDevice("/device:GPU:0", "GPU")] if kind == "GPU" else list(real(kind))

    with mock.patch.object(tf.config, "list_logical_devices", devices):
        yield
