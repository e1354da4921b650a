"""As `sagemaker.sklearn.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import SKLearn

__all__ = ["SKLearn"]
