"""cloudtrain: submit distributed training jobs to any cluster, with the API you know.

from cloudtrain import Estimator
job = Estimator(entry_point="train.py", instance_count=2).fit({"train": "s3://bucket/train"})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudtrain._version import __version__

if TYPE_CHECKING:
    from cloudtrain.contract import FailureClass, FailureReport, JobStatus
    from cloudtrain.errors import CloudtrainError, InvalidJob, TrainingFailed
    from cloudtrain.estimator import Estimator
    from cloudtrain.job import Job
    from cloudtrain.spec import InstanceGroup, ShuffleConfig, TrainingInput, TrainingJob

_PUBLIC = {
    "CloudtrainError": "errors",
    "Estimator": "estimator",
    "FailureClass": "contract",
    "FailureReport": "contract",
    "InstanceGroup": "spec",
    "InvalidJob": "errors",
    "Job": "job",
    "JobStatus": "contract",
    "ShuffleConfig": "spec",
    "TrainingFailed": "errors",
    "TrainingInput": "spec",
    "TrainingJob": "spec",
}
"""Public name -> module; imported when first used, so that ``import cloudtrain`` costs nothing."""

__all__ = [
    "CloudtrainError",
    "Estimator",
    "FailureClass",
    "FailureReport",
    "InstanceGroup",
    "InvalidJob",
    "Job",
    "JobStatus",
    "ShuffleConfig",
    "TrainingFailed",
    "TrainingInput",
    "TrainingJob",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'cloudtrain' has no attribute {name!r}")
    value = getattr(import_module(f"cloudtrain.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
