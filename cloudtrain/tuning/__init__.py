"""Hyperparameter tuning with SageMaker's tuning jobs, which run many training jobs and find the best."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.tuning.configuration import (
        HyperbandStrategyConfig,
        InstanceConfig,
        StrategyConfig,
        TuningJobCompletionCriteriaConfig,
        WarmStartConfig,
        WarmStartTypes,
    )
    from cloudtrain.tuning.job import TuningJob, TuningJobAnalytics
    from cloudtrain.tuning.parameters import CategoricalParameter, ContinuousParameter, IntegerParameter
    from cloudtrain.tuning.tuner import HyperparameterTuner

_NAMES = {
    "configuration": (
        "HyperbandStrategyConfig",
        "InstanceConfig",
        "StrategyConfig",
        "TuningJobCompletionCriteriaConfig",
        "WarmStartConfig",
        "WarmStartTypes",
    ),
    "job": ("TuningJob", "TuningJobAnalytics"),
    "parameters": ("CategoricalParameter", "ContinuousParameter", "IntegerParameter"),
    "tuner": ("HyperparameterTuner",),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
)

__all__ = [
    "CategoricalParameter",
    "ContinuousParameter",
    "HyperbandStrategyConfig",
    "HyperparameterTuner",
    "InstanceConfig",
    "IntegerParameter",
    "StrategyConfig",
    "TuningJob",
    "TuningJobAnalytics",
    "TuningJobCompletionCriteriaConfig",
    "WarmStartConfig",
    "WarmStartTypes",
]
