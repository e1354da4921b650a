"""cloudtrain: submits distributed training jobs, with the API of the SageMaker SDK and Horovod.

from cloudtrain import Estimator
job = Estimator(entry_point="train.py", instance_count=2).fit({"train": "s3://bucket/train"})
"""

from __future__ import annotations

from cloudtrain._lazy import lazy
from cloudtrain._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain import (
        checkpoint as checkpoint,
        distributed as distributed,
        environment as environment,
        observe as observe,
        optimizers as optimizers,
        pipelines as pipelines,
        sagemaker as sagemaker,
        testing as testing,
    )
    from cloudtrain.checkpoint import Checkpointer as Checkpointer
    from cloudtrain.contract import (
        FailureClass as FailureClass,
        FailureReport as FailureReport,
        JobStatus as JobStatus,
    )
    from cloudtrain.errors import (
        CloudtrainError as CloudtrainError,
        InvalidJob as InvalidJob,
        TrainingFailed as TrainingFailed,
    )
    from cloudtrain.estimator import Estimator as Estimator
    from cloudtrain.execution_role import get_execution_role as get_execution_role
    from cloudtrain.frameworks import (
        HuggingFace as HuggingFace,
        MXNet as MXNet,
        PyTorch as PyTorch,
        SKLearn as SKLearn,
        TensorFlow as TensorFlow,
        XGBoost as XGBoost,
    )
    from cloudtrain.job import Job as Job
    from cloudtrain.observe.metric_log import log as log
    from cloudtrain.sagemaker import image_uris as image_uris
    from cloudtrain.session import Session as Session
    from cloudtrain.spec import (
        CollectionConfig as CollectionConfig,
        DebuggerHookConfig as DebuggerHookConfig,
        FileSystemInput as FileSystemInput,
        InstanceGroup as InstanceGroup,
        InstancePreference as InstancePreference,
        MlflowConfig as MlflowConfig,
        ModelPackageConfig as ModelPackageConfig,
        Profiler as Profiler,
        ProfilerConfig as ProfilerConfig,
        ShuffleConfig as ShuffleConfig,
        TensorBoardOutputConfig as TensorBoardOutputConfig,
        TrainingInput as TrainingInput,
        TrainingJob as TrainingJob,
    )
    from cloudtrain.sweep import Sweep as Sweep
    from cloudtrain.training_analytics import TrainingJobAnalytics as TrainingJobAnalytics
    from cloudtrain.tuning import (
        CategoricalParameter as CategoricalParameter,
        ContinuousParameter as ContinuousParameter,
        HyperbandStrategyConfig as HyperbandStrategyConfig,
        HyperparameterTuner as HyperparameterTuner,
        InstanceConfig as InstanceConfig,
        IntegerParameter as IntegerParameter,
        StrategyConfig as StrategyConfig,
        TuningJobCompletionCriteriaConfig as TuningJobCompletionCriteriaConfig,
        WarmStartConfig as WarmStartConfig,
        WarmStartTypes as WarmStartTypes,
    )
    from cloudtrain.upload import upload_data as upload_data

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain": "checkpoint distributed environment observe optimizers pipelines sagemaker testing",
        "cloudtrain.checkpoint": "Checkpointer",
        "cloudtrain.contract": "FailureClass FailureReport JobStatus",
        "cloudtrain.errors": "CloudtrainError InvalidJob TrainingFailed",
        "cloudtrain.estimator": "Estimator",
        "cloudtrain.execution_role": "get_execution_role",
        "cloudtrain.frameworks": "HuggingFace MXNet PyTorch SKLearn TensorFlow XGBoost",
        "cloudtrain.job": "Job",
        "cloudtrain.sagemaker": "image_uris",
        "cloudtrain.observe.metric_log": "log",
        "cloudtrain.session": "Session",
        "cloudtrain.spec": (
            "CollectionConfig DebuggerHookConfig FileSystemInput InstanceGroup InstancePreference MlflowConfig "
            "ModelPackageConfig Profiler ProfilerConfig ShuffleConfig TensorBoardOutputConfig TrainingInput "
            "TrainingJob"
        ),
        "cloudtrain.sweep": "Sweep",
        "cloudtrain.training_analytics": "TrainingJobAnalytics",
        "cloudtrain.tuning": (
            "CategoricalParameter ContinuousParameter HyperbandStrategyConfig HyperparameterTuner "
            "InstanceConfig IntegerParameter StrategyConfig TuningJobCompletionCriteriaConfig WarmStartConfig "
            "WarmStartTypes"
        ),
        "cloudtrain.upload": "upload_data",
    },
)
__all__ += ["__version__"]
