"""What a job is: pure data, validated once, the same from Python, YAML and JSON."""

from cloudtrain.spec._convert import convert
from cloudtrain.spec.distribution import (
    Distribution,
    Horovod,
    Mpi,
    MultiWorkerMirrored,
    ParameterServer,
    Processes,
    PytorchDdp,
    TorchDistributed,
)
from cloudtrain.spec.documents import parse_yaml, read_job_file
from cloudtrain.spec.inputs import InstanceGroup, ShuffleConfig, TrainingInput
from cloudtrain.spec.job import FIELDS, Source, TrainingJob
from cloudtrain.spec.names import check_job_name, new_job_name
from cloudtrain.spec.overrides import apply_overrides, script_arguments
from cloudtrain.spec.redact import REDACTED, is_secret_name, redact

__all__ = [
    "FIELDS",
    "REDACTED",
    "Distribution",
    "Horovod",
    "InstanceGroup",
    "Mpi",
    "MultiWorkerMirrored",
    "ParameterServer",
    "Processes",
    "PytorchDdp",
    "ShuffleConfig",
    "Source",
    "TorchDistributed",
    "TrainingInput",
    "TrainingJob",
    "apply_overrides",
    "check_job_name",
    "convert",
    "is_secret_name",
    "new_job_name",
    "parse_yaml",
    "read_job_file",
    "redact",
    "script_arguments",
]
