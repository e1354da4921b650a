"""cloudtrain: submit distributed training jobs to any cluster, with the API you know.

from cloudtrain import Estimator
job = Estimator(entry_point="train.py", instance_count=2).fit({"train": "s3://bucket/train"})
"""

from __future__ import annotations

from cloudtrain._lazy import lazy
from cloudtrain._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.contract import FailureClass, FailureReport, JobStatus
    from cloudtrain.errors import CloudtrainError, InvalidJob, TrainingFailed
    from cloudtrain.estimator import Estimator
    from cloudtrain.frameworks import HuggingFace, MXNet, PyTorch, TensorFlow
    from cloudtrain.job import Job
    from cloudtrain.spec import (
        CollectionConfig,
        DebuggerHookConfig,
        FileSystemInput,
        InstanceGroup,
        Profiler,
        ProfilerConfig,
        ShuffleConfig,
        TensorBoardOutputConfig,
        TrainingInput,
        TrainingJob,
    )

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CloudtrainError": "cloudtrain.errors",
        "CollectionConfig": "cloudtrain.spec",
        "DebuggerHookConfig": "cloudtrain.spec",
        "Estimator": "cloudtrain.estimator",
        "FailureClass": "cloudtrain.contract",
        "FailureReport": "cloudtrain.contract",
        "FileSystemInput": "cloudtrain.spec",
        "HuggingFace": "cloudtrain.frameworks",
        "InstanceGroup": "cloudtrain.spec",
        "InvalidJob": "cloudtrain.errors",
        "Job": "cloudtrain.job",
        "JobStatus": "cloudtrain.contract",
        "MXNet": "cloudtrain.frameworks",
        "Profiler": "cloudtrain.spec",
        "ProfilerConfig": "cloudtrain.spec",
        "PyTorch": "cloudtrain.frameworks",
        "ShuffleConfig": "cloudtrain.spec",
        "TensorBoardOutputConfig": "cloudtrain.spec",
        "TensorFlow": "cloudtrain.frameworks",
        "TrainingFailed": "cloudtrain.errors",
        "TrainingInput": "cloudtrain.spec",
        "TrainingJob": "cloudtrain.spec",
    },
)

__all__ = [
    "CloudtrainError",
    "CollectionConfig",
    "DebuggerHookConfig",
    "Estimator",
    "FailureClass",
    "FailureReport",
    "FileSystemInput",
    "HuggingFace",
    "InstanceGroup",
    "InvalidJob",
    "Job",
    "JobStatus",
    "MXNet",
    "Profiler",
    "ProfilerConfig",
    "PyTorch",
    "ShuffleConfig",
    "TensorBoardOutputConfig",
    "TensorFlow",
    "TrainingFailed",
    "TrainingInput",
    "TrainingJob",
    "__version__",
]
