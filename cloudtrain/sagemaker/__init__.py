"""The modules and names of the SageMaker SDK, version 2, that notebooks train with.

Change the import lines of a notebook, and nothing else::

    import sagemaker                       ->  from cloudtrain import sagemaker
    from sagemaker.pytorch import PyTorch  ->  from cloudtrain.sagemaker.pytorch import PyTorch
"""

from __future__ import annotations

from cloudtrain.sagemaker._elsewhere import install, modules, others

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.execution_role import get_execution_role
    from cloudtrain.sagemaker.analytics import HyperparameterTuningJobAnalytics
    from cloudtrain.session import LocalSession, Session
    from cloudtrain.spec import Profiler, ProfilerConfig, TrainingInput
    from cloudtrain.training_analytics import TrainingJobAnalytics

__version__ = "2.257.7"
"""The version of the SDK that has these names."""

install()
__getattr__ = others(__name__)


def __dir__() -> list[str]:
    return sorted([*__all__, *modules(), "__version__"])


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
