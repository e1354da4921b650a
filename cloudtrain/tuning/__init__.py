"""Hyperparameter tuning with SageMaker's tuning jobs, which run many training jobs and find the best."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.tuning.configuration import (
        HyperbandStrategyConfig as HyperbandStrategyConfig,
        InstanceConfig as InstanceConfig,
        StrategyConfig as StrategyConfig,
        TuningJobCompletionCriteriaConfig as TuningJobCompletionCriteriaConfig,
        WarmStartConfig as WarmStartConfig,
        WarmStartTypes as WarmStartTypes,
    )
    from cloudtrain.tuning.job import TuningJob as TuningJob, TuningJobAnalytics as TuningJobAnalytics
    from cloudtrain.tuning.parameters import (
        CategoricalParameter as CategoricalParameter,
        ContinuousParameter as ContinuousParameter,
        IntegerParameter as IntegerParameter,
    )
    from cloudtrain.tuning.tuner import HyperparameterTuner as HyperparameterTuner


__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.tuning.configuration": (
            "HyperbandStrategyConfig InstanceConfig StrategyConfig TuningJobCompletionCriteriaConfig "
            "WarmStartConfig WarmStartTypes"
        ),
        "cloudtrain.tuning.job": "TuningJob TuningJobAnalytics",
        "cloudtrain.tuning.parameters": "CategoricalParameter ContinuousParameter IntegerParameter",
        "cloudtrain.tuning.tuner": "HyperparameterTuner",
    },
)
