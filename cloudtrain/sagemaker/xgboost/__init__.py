"""As `sagemaker.xgboost` of the SDK."""

from __future__ import annotations

from cloudtrain.frameworks import XGBoost
from cloudtrain.sagemaker._elsewhere import at_home

__getattr__ = at_home(
    "xgboost", "sagemaker.serve", renamed="ModelBuilder", only=("XGBoostModel", "XGBoostPredictor")
)

__all__ = ["XGBoost"]
