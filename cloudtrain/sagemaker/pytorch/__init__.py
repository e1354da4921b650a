"""As `sagemaker.pytorch` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import PyTorch
from cloudtrain.sagemaker._elsewhere import of_framework

__getattr__ = of_framework("pytorch", "PyTorch")

__all__ = ["PyTorch"]
