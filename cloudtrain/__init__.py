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
    from cloudtrain.job import Job
    from cloudtrain.spec import InstanceGroup, ShuffleConfig, TrainingInput, TrainingJob

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CloudtrainError": "cloudtrain.errors",
        "Estimator": "cloudtrain.estimator",
        "FailureClass": "cloudtrain.contract",
        "FailureReport": "cloudtrain.contract",
        "InstanceGroup": "cloudtrain.spec",
        "InvalidJob": "cloudtrain.errors",
        "Job": "cloudtrain.job",
        "JobStatus": "cloudtrain.contract",
        "ShuffleConfig": "cloudtrain.spec",
        "TrainingFailed": "cloudtrain.errors",
        "TrainingInput": "cloudtrain.spec",
        "TrainingJob": "cloudtrain.spec",
    },
)

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
