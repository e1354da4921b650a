"""The contract of a training container: paths, documents, environment, command line, outcome.

It is Amazon SageMaker's contract: on every platform, a script finds the same under ``/opt/ml`` and in its environment.
Standard library only: this package is bundled into the job.
"""

from cloudtrain.contract.arguments import decode_arguments, encode_arguments, expand, placeholder_channels
from cloudtrain.contract.environment import script_environment
from cloudtrain.contract.failure import FailureClass, FailureReport
from cloudtrain.contract.host import Host, cpu_count, gpu_count, read_document
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
from cloudtrain.contract.rank import RankSlot
from cloudtrain.contract.settings import Settings
from cloudtrain.contract.source import SourceLimits
from cloudtrain.contract.status import JobStatus

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
