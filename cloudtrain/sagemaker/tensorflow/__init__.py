"""As `sagemaker.tensorflow` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import TensorFlow
from cloudtrain.sagemaker._elsewhere import of_framework

__getattr__ = of_framework("tensorflow", "TensorFlow")

__all__ = ["TensorFlow"]
