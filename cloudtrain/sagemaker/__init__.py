"""The modules and names of the SageMaker SDK, version 2, that notebooks train with.

Change the import lines of a notebook, and nothing else::

    import sagemaker                       ->  from cloudtrain import sagemaker
    from sagemaker.pytorch import PyTorch  ->  from cloudtrain.sagemaker.pytorch import PyTorch
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cloudtrain.execution_role import get_execution_role
    from cloudtrain.sagemaker.analytics import HyperparameterTuningJobAnalytics
    from cloudtrain.session import LocalSession, Session
    from cloudtrain.spec import Profiler, ProfilerConfig, TrainingInput
    from cloudtrain.training_analytics import TrainingJobAnalytics

__version__ = "2.257.7"
"""The version of the SDK whose names these are."""

_NAMES = {
    "HyperparameterTuningJobAnalytics": "cloudtrain.sagemaker.analytics",
    "LocalSession": "cloudtrain.session",
    "Profiler": "cloudtrain.spec",
    "ProfilerConfig": "cloudtrain.spec",
    "Session": "cloudtrain.session",
    "TrainingInput": "cloudtrain.spec",
    "TrainingJobAnalytics": "cloudtrain.training_analytics",
    "get_execution_role": "cloudtrain.execution_role",
}

_MODULES = (
    "analytics",
    "debugger",
    "deserializers",
    "estimator",
    "huggingface",
    "image_uris",
    "inputs",
    "instance_group",
    "local",
    "model",
    "mxnet",
    "network",
    "parameter",
    "predictor",
    "processing",
    "pytorch",
    "s3",
    "serializers",
    "session",
    "sklearn",
    "tensorflow",
    "transformer",
    "tuner",
    "utils",
    "xgboost",
)
"""The modules of the SDK that are here, too. Each is imported when it is used."""


_ALGORITHMS = {
    "FactorizationMachines": "factorization-machines",
    "IPInsights": "ipinsights",
    "KMeans": "kmeans",
    "KNN": "knn",
    "LDA": "lda",
    "LinearLearner": "linear-learner",
    "NTM": "ntm",
    "Object2Vec": "object2vec",
    "PCA": "pca",
    "RandomCutForest": "randomcutforest",
}
"""The SDK's classes for AWS's algorithms, and the names of their images."""

_ELSEWHERE = {
    "Model": "model",
    "Predictor": "predictor",
    "Processor": "processing",
    "ScriptProcessor": "processing",
}
"""Placeholders, and the modules that have them."""


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    if name in _ALGORITHMS:
        from cloudtrain.errors import NotSupported

        line = f'Estimator(image_uris.retrieve("{_ALGORITHMS[name]}", region), role, 1, "ml.m5.xlarge", ...)'
        raise NotSupported(
            f"sagemaker.{name}: cloudtrain runs AWS's algorithms by their images", hint=f"Write {line}."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_NAMES, *_MODULES, "__version__"])


__all__ = [
    "HyperparameterTuningJobAnalytics",
    "LocalSession",
    "Profiler",
    "ProfilerConfig",
    "Session",
    "TrainingInput",
    "TrainingJobAnalytics",
    "get_execution_role",
]
