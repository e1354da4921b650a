"""The contract of a training container: paths, documents, environment, command line, outcome.

It is Amazon SageMaker's contract: on every platform, a script finds the same under ``/opt/ml`` and in its environment.
Standard library only: this package is bundled into the job.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.contract.arguments import decode_arguments, encode_arguments, expand, placeholder_channels
    from cloudtrain.contract.environment import script_environment
    from cloudtrain.contract.failure import FailureClass, FailureReport
    from cloudtrain.contract.host import Host, gpu_count, read_document
    from cloudtrain.contract.hyperparameters import (
        decode_hyperparameters,
        encode_hyperparameters,
        host_hyperparameters,
        to_arguments,
        user_hyperparameters,
    )
    from cloudtrain.contract.launcher import Launcher
    from cloudtrain.contract.paths import Paths
    from cloudtrain.contract.preemption import PREEMPTED, SPOT_VARIABLE, Notice
    from cloudtrain.contract.processors import cpu_count
    from cloudtrain.contract.rank import RankSlot
    from cloudtrain.contract.settings import Settings
    from cloudtrain.contract.source import SourceLimits
    from cloudtrain.contract.status import JobStatus

__getattr__, __dir__ = lazy(
    __name__,
    {
        "PREEMPTED": "cloudtrain.contract.preemption",
        "SPOT_VARIABLE": "cloudtrain.contract.preemption",
        "FailureClass": "cloudtrain.contract.failure",
        "FailureReport": "cloudtrain.contract.failure",
        "Host": "cloudtrain.contract.host",
        "JobStatus": "cloudtrain.contract.status",
        "Launcher": "cloudtrain.contract.launcher",
        "Notice": "cloudtrain.contract.preemption",
        "Paths": "cloudtrain.contract.paths",
        "RankSlot": "cloudtrain.contract.rank",
        "Settings": "cloudtrain.contract.settings",
        "SourceLimits": "cloudtrain.contract.source",
        "cpu_count": "cloudtrain.contract.processors",
        "decode_arguments": "cloudtrain.contract.arguments",
        "decode_hyperparameters": "cloudtrain.contract.hyperparameters",
        "encode_arguments": "cloudtrain.contract.arguments",
        "encode_hyperparameters": "cloudtrain.contract.hyperparameters",
        "expand": "cloudtrain.contract.arguments",
        "gpu_count": "cloudtrain.contract.host",
        "host_hyperparameters": "cloudtrain.contract.hyperparameters",
        "placeholder_channels": "cloudtrain.contract.arguments",
        "read_document": "cloudtrain.contract.host",
        "script_environment": "cloudtrain.contract.environment",
        "to_arguments": "cloudtrain.contract.hyperparameters",
        "user_hyperparameters": "cloudtrain.contract.hyperparameters",
    },
)

__all__ = [
    "PREEMPTED",
    "SPOT_VARIABLE",
    "FailureClass",
    "FailureReport",
    "Host",
    "JobStatus",
    "Launcher",
    "Notice",
    "Paths",
    "RankSlot",
    "Settings",
    "SourceLimits",
    "cpu_count",
    "decode_arguments",
    "decode_hyperparameters",
    "encode_arguments",
    "encode_hyperparameters",
    "expand",
    "gpu_count",
    "host_hyperparameters",
    "placeholder_channels",
    "read_document",
    "script_environment",
    "to_arguments",
    "user_hyperparameters",
]
