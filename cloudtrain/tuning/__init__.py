"""Hyperparameter tuning with SageMaker's tuning jobs, which run many training jobs and find the best one."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.tuning.configuration import (
        CategoricalParameter as CategoricalParameter,
        ContinuousParameter as ContinuousParameter,
        HyperbandStrategyConfig as HyperbandStrategyConfig,
        InstanceConfig as InstanceConfig,
        IntegerParameter as IntegerParameter,
        StrategyConfig as StrategyConfig,
        TuningJobCompletionCriteriaConfig as TuningJobCompletionCriteriaConfig,
        WarmStartConfig as WarmStartConfig,
        WarmStartTypes as WarmStartTypes,
    )
    from cloudtrain.tuning.job import TuningJob as TuningJob, TuningJobAnalytics as TuningJobAnalytics
    from cloudtrain.tuning.tuner import HyperparameterTuner as HyperparameterTuner


__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.tuning.configuration": (
            "CategoricalParameter ContinuousParameter HyperbandStrategyConfig InstanceConfig IntegerParameter "
            "StrategyConfig TuningJobCompletionCriteriaConfig WarmStartConfig WarmStartTypes"
        ),
        "cloudtrain.tuning.job": "TuningJob TuningJobAnalytics",
        "cloudtrain.tuning.tuner": "HyperparameterTuner",
    },
)
