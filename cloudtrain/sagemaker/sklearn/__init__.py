"""As `sagemaker.sklearn` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import SKLearn
from cloudtrain.sagemaker._elsewhere import of_framework

__getattr__ = of_framework("sklearn", "SKLearn")

__all__ = ["SKLearn"]
