"""The contract of a training container: paths, documents, environment, command line, outcome.

It is Amazon SageMaker's contract: a script finds the same files and variables on every platform.
Standard library only: this package is bundled into the job.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.contract.arguments import (
        decode_arguments as decode_arguments,
        encode_arguments as encode_arguments,
        expand as expand,
        placeholder_channels as placeholder_channels,
    )
    from cloudtrain.contract.environment import script_environment as script_environment
    from cloudtrain.contract.failure import FailureClass as FailureClass, FailureReport as FailureReport
    from cloudtrain.contract.host import Host as Host, gpu_count as gpu_count, read_document as read_document
    from cloudtrain.contract.hyperparameters import (
        decode_hyperparameters as decode_hyperparameters,
        encode_hyperparameters as encode_hyperparameters,
        host_hyperparameters as host_hyperparameters,
        to_arguments as to_arguments,
        user_hyperparameters as user_hyperparameters,
    )
    from cloudtrain.contract.launcher import Launcher as Launcher
    from cloudtrain.contract.paths import Paths as Paths
    from cloudtrain.contract.preemption import (
        PREEMPTED as PREEMPTED,
        SPOT_VARIABLE as SPOT_VARIABLE,
        Notice as Notice,
    )
    from cloudtrain.contract.processors import cpu_count as cpu_count
    from cloudtrain.contract.rank import RankSlot as RankSlot
    from cloudtrain.contract.settings import Settings as Settings
    from cloudtrain.contract.source import SourceLimits as SourceLimits
    from cloudtrain.contract.status import JobStatus as JobStatus

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.contract.arguments": "decode_arguments encode_arguments expand placeholder_channels",
        "cloudtrain.contract.environment": "script_environment",
        "cloudtrain.contract.failure": "FailureClass FailureReport",
        "cloudtrain.contract.host": "Host gpu_count read_document",
        "cloudtrain.contract.hyperparameters": (
            "decode_hyperparameters encode_hyperparameters host_hyperparameters to_arguments "
            "user_hyperparameters"
        ),
        "cloudtrain.contract.launcher": "Launcher",
        "cloudtrain.contract.paths": "Paths",
        "cloudtrain.contract.preemption": "Notice PREEMPTED SPOT_VARIABLE",
        "cloudtrain.contract.processors": "cpu_count",
        "cloudtrain.contract.rank": "RankSlot",
        "cloudtrain.contract.settings": "Settings",
        "cloudtrain.contract.source": "SourceLimits",
        "cloudtrain.contract.status": "JobStatus",
    },
)
