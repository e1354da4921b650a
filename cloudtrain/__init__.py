"""cloudtrain: submits distributed training jobs, with the API of the SageMaker SDK and Horovod.

from cloudtrain import Estimator
job = Estimator(entry_point="train.py", instance_count=2).fit({"train": "s3://bucket/train"})
"""

from __future__ import annotations

from cloudtrain._lazy import lazy
from cloudtrain._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain import checkpoint as checkpoint
    from cloudtrain import distributed as distributed
    from cloudtrain import environment as environment
    from cloudtrain import observe as observe
    from cloudtrain import optimizers as optimizers
    from cloudtrain import pipelines as pipelines
    from cloudtrain import sagemaker as sagemaker
    from cloudtrain import testing as testing
    from cloudtrain.contract import FailureClass, FailureReport, JobStatus
    from cloudtrain.errors import CloudtrainError, InvalidJob, TrainingFailed
    from cloudtrain.estimator import Estimator
    from cloudtrain.execution_role import get_execution_role
    from cloudtrain.frameworks import HuggingFace, MXNet, PyTorch, SKLearn, TensorFlow, XGBoost
    from cloudtrain.job import Job
    from cloudtrain.sagemaker import image_uris
    from cloudtrain.session import Session
    from cloudtrain.spec import (
        CollectionConfig,
        DebuggerHookConfig,
        FileSystemInput,
        InstanceGroup,
        InstancePreference,
        MlflowConfig,
        ModelPackageConfig,
        Profiler,
        ProfilerConfig,
        ShuffleConfig,
        TensorBoardOutputConfig,
        TrainingInput,
        TrainingJob,
    )
    from cloudtrain.training_analytics import TrainingJobAnalytics
    from cloudtrain.tuning import (
        CategoricalParameter,
        ContinuousParameter,
        HyperbandStrategyConfig,
        HyperparameterTuner,
        InstanceConfig,
        IntegerParameter,
        StrategyConfig,
        TuningJobCompletionCriteriaConfig,
        WarmStartConfig,
        WarmStartTypes,
    )
    from cloudtrain.upload import upload_data

__getattr__, __dir__ = lazy(
    __name__,
    {
        "CategoricalParameter": "cloudtrain.tuning",
        "CloudtrainError": "cloudtrain.errors",
        "CollectionConfig": "cloudtrain.spec",
        "ContinuousParameter": "cloudtrain.tuning",
        "DebuggerHookConfig": "cloudtrain.spec",
        "Estimator": "cloudtrain.estimator",
        "FailureClass": "cloudtrain.contract",
        "FailureReport": "cloudtrain.contract",
        "FileSystemInput": "cloudtrain.spec",
        "HuggingFace": "cloudtrain.frameworks",
        "HyperbandStrategyConfig": "cloudtrain.tuning",
        "HyperparameterTuner": "cloudtrain.tuning",
        "InstanceConfig": "cloudtrain.tuning",
        "InstanceGroup": "cloudtrain.spec",
        "InstancePreference": "cloudtrain.spec",
        "IntegerParameter": "cloudtrain.tuning",
        "InvalidJob": "cloudtrain.errors",
        "Job": "cloudtrain.job",
        "JobStatus": "cloudtrain.contract",
        "MXNet": "cloudtrain.frameworks",
        "MlflowConfig": "cloudtrain.spec",
        "ModelPackageConfig": "cloudtrain.spec",
        "Profiler": "cloudtrain.spec",
        "ProfilerConfig": "cloudtrain.spec",
        "PyTorch": "cloudtrain.frameworks",
        "SKLearn": "cloudtrain.frameworks",
        "Session": "cloudtrain.session",
        "ShuffleConfig": "cloudtrain.spec",
        "StrategyConfig": "cloudtrain.tuning",
        "TensorBoardOutputConfig": "cloudtrain.spec",
        "TensorFlow": "cloudtrain.frameworks",
        "TrainingFailed": "cloudtrain.errors",
        "TrainingInput": "cloudtrain.spec",
        "TrainingJob": "cloudtrain.spec",
        "TrainingJobAnalytics": "cloudtrain.training_analytics",
        "TuningJobCompletionCriteriaConfig": "cloudtrain.tuning",
        "WarmStartConfig": "cloudtrain.tuning",
        "WarmStartTypes": "cloudtrain.tuning",
        "XGBoost": "cloudtrain.frameworks",
        "checkpoint": "cloudtrain.checkpoint",
        "distributed": "cloudtrain.distributed",
        "environment": "cloudtrain.environment",
        "get_execution_role": "cloudtrain.execution_role",
        "image_uris": "cloudtrain.sagemaker",
        "observe": "cloudtrain.observe",
        "optimizers": "cloudtrain.optimizers",
        "pipelines": "cloudtrain.pipelines",
        "sagemaker": "cloudtrain.sagemaker",
        "testing": "cloudtrain.testing",
        "upload_data": "cloudtrain.upload",
    },
)

__all__ = [
    "CategoricalParameter",
    "CloudtrainError",
    "CollectionConfig",
    "ContinuousParameter",
    "DebuggerHookConfig",
    "Estimator",
    "FailureClass",
    "FailureReport",
    "FileSystemInput",
    "HuggingFace",
    "HyperbandStrategyConfig",
    "HyperparameterTuner",
    "InstanceConfig",
    "InstanceGroup",
    "InstancePreference",
    "IntegerParameter",
    "InvalidJob",
    "Job",
    "JobStatus",
    "MXNet",
    "MlflowConfig",
    "ModelPackageConfig",
    "Profiler",
    "ProfilerConfig",
    "PyTorch",
    "SKLearn",
    "Session",
    "ShuffleConfig",
    "StrategyConfig",
    "TensorBoardOutputConfig",
    "TensorFlow",
    "TrainingFailed",
    "TrainingInput",
    "TrainingJob",
    "TrainingJobAnalytics",
    "TuningJobCompletionCriteriaConfig",
    "WarmStartConfig",
    "WarmStartTypes",
    "XGBoost",
    "__version__",
    "get_execution_role",
    "image_uris",
    "upload_data",
]
