"""As `sagemaker.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.estimator import Estimator

__all__ = ["Estimator"]
