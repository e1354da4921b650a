"""As `sagemaker.pytorch` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import PyTorch

__all__ = ["PyTorch"]
