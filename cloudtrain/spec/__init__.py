"""The description of a job: pure data, validated once, the same from Python, YAML and JSON."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain._secrets.names import is_secret_name as is_secret_name
    from cloudtrain.spec.conversion import DEFAULT_MAX_RUN as DEFAULT_MAX_RUN, convert as convert
    from cloudtrain.spec.distribution import (
        Agent as Agent,
        DataParallel as DataParallel,
        Distribution as Distribution,
        Horovod as Horovod,
        ModelParallel as ModelParallel,
        Mpi as Mpi,
        MultiWorkerMirrored as MultiWorkerMirrored,
        ParameterServer as ParameterServer,
        Processes as Processes,
        PytorchDdp as PytorchDdp,
        PytorchXla as PytorchXla,
        SmDistributed as SmDistributed,
        TorchDistributed as TorchDistributed,
    )
    from cloudtrain.spec.documents import (
        apply_overrides as apply_overrides,
        parse_yaml as parse_yaml,
        read_job_file as read_job_file,
    )
    from cloudtrain.spec.inputs import (
        Channel as Channel,
        FileSystemInput as FileSystemInput,
        InstanceGroup as InstanceGroup,
        InstancePreference as InstancePreference,
        ShuffleConfig as ShuffleConfig,
        TrainingInput as TrainingInput,
    )
    from cloudtrain.spec.job import (
        FIELDS as FIELDS,
        RUNTIMES as RUNTIMES,
        CostTerms as CostTerms,
        Source as Source,
        TrainingJob as TrainingJob,
        base_name as base_name,
    )
    from cloudtrain.spec.names import check_job_name as check_job_name, new_job_name as new_job_name
    from cloudtrain.spec.sagemaker import (
        RULE_SOURCE as RULE_SOURCE,
        CollectionConfig as CollectionConfig,
        DebuggerHookConfig as DebuggerHookConfig,
        MlflowConfig as MlflowConfig,
        ModelPackageConfig as ModelPackageConfig,
        Profiler as Profiler,
        ProfilerConfig as ProfilerConfig,
        Rule as Rule,
        TensorBoardOutputConfig as TensorBoardOutputConfig,
        TrainingCompilerConfig as TrainingCompilerConfig,
    )
    from cloudtrain.spec.secrets import REDACTED as REDACTED, is_secret as is_secret, redact as redact

# lazy: commands that only read jobs need neither msgspec nor descriptions
__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain._secrets.names": "is_secret_name",
        "cloudtrain.spec.conversion": "DEFAULT_MAX_RUN convert",
        "cloudtrain.spec.distribution": (
            "Agent DataParallel Distribution Horovod ModelParallel Mpi MultiWorkerMirrored ParameterServer "
            "Processes PytorchDdp PytorchXla SmDistributed TorchDistributed"
        ),
        "cloudtrain.spec.documents": "apply_overrides parse_yaml read_job_file",
        "cloudtrain.spec.inputs": (
            "Channel FileSystemInput InstanceGroup InstancePreference ShuffleConfig TrainingInput"
        ),
        "cloudtrain.spec.job": "FIELDS RUNTIMES CostTerms Source TrainingJob base_name",
        "cloudtrain.spec.names": "check_job_name new_job_name",
        "cloudtrain.spec.sagemaker": (
            "RULE_SOURCE CollectionConfig DebuggerHookConfig MlflowConfig ModelPackageConfig Profiler "
            "ProfilerConfig Rule TensorBoardOutputConfig TrainingCompilerConfig"
        ),
        "cloudtrain.spec.secrets": "REDACTED is_secret redact",
    },
)
