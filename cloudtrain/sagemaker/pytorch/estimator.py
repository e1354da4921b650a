"""As `sagemaker.pytorch.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import PyTorch

__all__ = ["PyTorch"]
