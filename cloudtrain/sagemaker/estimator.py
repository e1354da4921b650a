"""As `sagemaker.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.estimator import Estimator
from cloudtrain.sagemaker._elsewhere import others

__getattr__ = others(__name__)

__all__ = ["Estimator"]
