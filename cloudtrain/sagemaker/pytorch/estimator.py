"""As `sagemaker.pytorch.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import PyTorch
from cloudtrain.sagemaker._elsewhere import others

__getattr__ = others(__name__)

__all__ = ["PyTorch"]
