"""The description of a job: pure data, validated once, the same from Python, YAML and JSON."""

from cloudtrain._secrets.names import is_secret_name
from cloudtrain.spec._checks import DEFAULT_MAX_RUN
from cloudtrain.spec.convert import convert
from cloudtrain.spec.distribution import (
    Agent,
    DataParallel,
    Distribution,
    Horovod,
    ModelParallel,
    Mpi,
    MultiWorkerMirrored,
    ParameterServer,
    Processes,
    PytorchDdp,
    PytorchXla,
    SmDistributed,
    TorchDistributed,
)
from cloudtrain.spec.documents import apply_overrides, parse_yaml, read_job_file
from cloudtrain.spec.inputs import (
    Channel,
    FileSystemInput,
    InstanceGroup,
    InstancePreference,
    ShuffleConfig,
    TrainingInput,
)
from cloudtrain.spec.job import FIELDS, RUNTIMES, Source, TrainingJob, base_name
from cloudtrain.spec.names import check_job_name, new_job_name
from cloudtrain.spec.sagemaker import (
    RULE_SOURCE,
    CollectionConfig,
    DebuggerHookConfig,
    MlflowConfig,
    ModelPackageConfig,
    Profiler,
    ProfilerConfig,
    Rule,
    TensorBoardOutputConfig,
    TrainingCompilerConfig,
)
from cloudtrain.spec.secrets import REDACTED, is_secret, redact

__all__ = [
    "DEFAULT_MAX_RUN",
    "FIELDS",
    "REDACTED",
    "RULE_SOURCE",
    "RUNTIMES",
    "Agent",
    "Channel",
    "CollectionConfig",
    "DataParallel",
    "DebuggerHookConfig",
    "Distribution",
    "FileSystemInput",
    "Horovod",
    "InstanceGroup",
    "InstancePreference",
    "MlflowConfig",
    "ModelPackageConfig",
    "ModelParallel",
    "Mpi",
    "MultiWorkerMirrored",
    "ParameterServer",
    "Processes",
    "Profiler",
    "ProfilerConfig",
    "PytorchDdp",
    "PytorchXla",
    "Rule",
    "ShuffleConfig",
    "SmDistributed",
    "Source",
    "TensorBoardOutputConfig",
    "TorchDistributed",
    "TrainingCompilerConfig",
    "TrainingInput",
    "TrainingJob",
    "apply_overrides",
    "base_name",
    "check_job_name",
    "convert",
    "is_secret",
    "is_secret_name",
    "new_job_name",
    "parse_yaml",
    "read_job_file",
    "redact",
]
