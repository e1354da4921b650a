"""As `sagemaker.parameter` of the SDK."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.tuning import CategoricalParameter, ContinuousParameter, IntegerParameter

__getattr__ = others(__name__)

__all__ = ["CategoricalParameter", "ContinuousParameter", "IntegerParameter"]
