"""As `sagemaker.huggingface` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import HuggingFace
from cloudtrain.sagemaker._elsewhere import of_framework

__getattr__ = of_framework("huggingface", "HuggingFace")

__all__ = ["HuggingFace"]
