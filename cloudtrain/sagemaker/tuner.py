"""As `sagemaker.tuner` of the SDK."""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import others
from cloudtrain.tuning import (
    CategoricalParameter,
    ContinuousParameter,
    HyperbandStrategyConfig,
    HyperparameterTuner,
    InstanceConfig,
    IntegerParameter,
    StrategyConfig,
    TuningJobCompletionCriteriaConfig,
    WarmStartConfig,
    WarmStartTypes,
)

__getattr__ = others(__name__)

__all__ = [
    "CategoricalParameter",
    "ContinuousParameter",
    "HyperbandStrategyConfig",
    "HyperparameterTuner",
    "InstanceConfig",
    "IntegerParameter",
    "StrategyConfig",
    "TuningJobCompletionCriteriaConfig",
    "WarmStartConfig",
    "WarmStartTypes",
]
