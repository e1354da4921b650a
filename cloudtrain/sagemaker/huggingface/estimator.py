"""As `sagemaker.huggingface.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import HuggingFace

__all__ = ["HuggingFace"]
