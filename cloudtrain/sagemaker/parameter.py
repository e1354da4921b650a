"""As `sagemaker.parameter` of the SDK."""

from __future__ import annotations

from cloudtrain.tuning import CategoricalParameter, ContinuousParameter, IntegerParameter

__all__ = ["CategoricalParameter", "ContinuousParameter", "IntegerParameter"]
