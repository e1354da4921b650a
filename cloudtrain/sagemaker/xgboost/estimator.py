"""As `sagemaker.xgboost.estimator` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import XGBoost

__all__ = ["XGBoost"]
