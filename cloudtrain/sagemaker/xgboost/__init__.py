"""As `sagemaker.xgboost` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import XGBoost
from cloudtrain.sagemaker._elsewhere import of_framework

__getattr__ = of_framework("xgboost", "XGBoost")

__all__ = ["XGBoost"]
