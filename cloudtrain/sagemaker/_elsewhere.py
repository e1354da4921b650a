"""The modules and names of the SageMaker SDK, version 2, that are not for training: all can be imported, none be used.

Notebooks import such names with those for training, and use them afterwards. So the cells that train run, and using a
name raises an error with the line to write. ``names.txt`` has the SDK's modules and their names.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from cloudtrain.errors import NotSupported

PACKAGE = "cloudtrain.sagemaker"

_HERE = {
    "cloudtrain.errors": "TrainingFailed",
    "cloudtrain.estimator": "Estimator",
    "cloudtrain.execution_role": "get_execution_role",
    "cloudtrain.frameworks": "HuggingFace MXNet PyTorch SKLearn TensorFlow XGBoost",
    "cloudtrain.processing": (
        "FrameworkProcessor HuggingFaceProcessor MXNetProcessor NetworkConfig ProcessingInput ProcessingJob"
        " ProcessingOutput Processor PyTorchProcessor SKLearnProcessor ScriptProcessor TensorFlowProcessor"
        " XGBoostProcessor"
    ),
    "cloudtrain.sagemaker._algorithms": (
        "AmazonAlgorithmEstimatorBase FactorizationMachines IPInsights KMeans KNN LDA LinearLearner NTM Object2Vec PCA"
        " RandomCutForest"
    ),
    "cloudtrain.sagemaker._jumpstart": "And Identity JumpStartEstimator Not Or list_jumpstart_models",
    "cloudtrain.sagemaker._record_sets": (
        "FileSystemRecordSet RecordSet write_numpy_to_dense_tensor write_spmatrix_to_sparse_tensor"
    ),
    "cloudtrain.sagemaker._reinforcement": "RLEstimator RLFramework RLToolkit",
    "cloudtrain.sagemaker.debugger._framework_profile": (
        "DataloaderProfilingConfig DetailedProfilingConfig FrameworkProfile HorovodProfilingConfig PythonProfiler"
        " PythonProfilingConfig SMDataParallelProfilingConfig cProfileTimer"
    ),
    "cloudtrain.sagemaker.debugger._rules": "ProfilerRule Rule",
    "cloudtrain.sagemaker.analytics": "HyperparameterTuningJobAnalytics",
    "cloudtrain.sagemaker.image_uris": "get_image_uri",
    "cloudtrain.sagemaker.s3": "S3Downloader S3Uploader parse_s3_url s3_path_join",
    "cloudtrain.sagemaker.utils": "name_from_base unique_name_from_base",
    "cloudtrain.session": "LocalSession Session",
    "cloudtrain.spec": (
        "CollectionConfig DebuggerHookConfig FileSystemInput InstanceGroup Profiler ProfilerConfig ShuffleConfig"
        " TensorBoardOutputConfig TrainingCompilerConfig TrainingInput"
    ),
    "cloudtrain.training_analytics": "TrainingJobAnalytics",
    "cloudtrain.tuning": (
        "CategoricalParameter ContinuousParameter HyperbandStrategyConfig HyperparameterTuner InstanceConfig"
        " IntegerParameter StrategyConfig TuningJobCompletionCriteriaConfig WarmStartConfig WarmStartTypes"
    ),
}
"""The names that are here, by the module that has them. They are found in every module of the SDK that has them."""

_RENAMED = {
    "RealTimePredictor": "Predictor",
    "UnexpectedStatusException": "TrainingFailed",
    "csv_deserializer": "CSVDeserializer",
    "csv_serializer": "CSVSerializer",
    "json_deserializer": "JSONDeserializer",
    "json_serializer": "JSONSerializer",
    "npy_serializer": "NumpySerializer",
    "numpy_deserializer": "NumpyDeserializer",
    "s3_input": "TrainingInput",
}
"""Names that the SDK's version 2, or cloudtrain, calls otherwise."""

_V3 = "Use the SageMaker SDK, version 3 (pip install 'sagemaker>=3'):\n      from sagemaker.{}"
_V2 = "Use the SageMaker SDK, version 2 (pip install 'sagemaker<3'):\n      from sagemaker{} import {}"

_FRAMEWORKS = "(huggingface|mxnet|pytorch|sklearn|tensorflow|xgboost)"

_INSTEAD = (
    (r"remote_function\..*", "Write the function into a script: Estimator('train.py', ...).fit()."),
    (
        r"experiments\..*",
        "Name the experiment of a job: fit(inputs, experiment_config={'ExperimentName': ...}).",
    ),
    (
        r"feature_store\..*",
        "A job reads its data from S3: train on the result of a query of the offline store. With boto3:\n"
        "      boto3.client('sagemaker').create_feature_group(...)\n"
        "      boto3.client('sagemaker-featurestore-runtime').put_record(...)\n"
        "      boto3.client('athena').start_query_execution(...)",
    ),
    (r"workflow\.steps\.TrainingStep", "Write from cloudtrain.pipelines import TrainingStep."),
    (r"(.*\.)?\w*Deserializer", _V3.format("core.deserializers import {name}")),
    (r"(.*\.)?\w*Serializer", _V3.format("core.serializers import {name}")),
    (r"transformer\..*|Transformer", _V3.format("core.transformer import {name}")),
    (r"(.*\.)?\w+Model|(model\.)?Model", _V3.format("serve import ModelBuilder")),
    (r"(.*\.)?\w*Predictor", _V3.format("core.resources import Endpoint")),
    (r"processing\..*", _V3.format("core.processing import {name}")),
    (rf"{_FRAMEWORKS}\..*Processor", _V3.format("core.processing import FrameworkProcessor")),
)
"""Hints: a pattern of names, and the hint or the name of one in `UNSUPPORTED`. The first match counts."""

_INERT = re.compile(r"(.*\.)?(\w*Serializer|\w*Deserializer)")
"""Names whose objects can be made: ``deploy(serializer=CSVSerializer())`` is then refused by ``deploy``."""


@cache
def sdk_names() -> dict[str, frozenset[str]]:
    """The modules of the SDK, as ``amazon.kmeans``, and the names that they define."""
    lines = Path(__file__).with_name("names.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines]
    return {module.strip("."): frozenset(names) for module, *names in words}


def modules() -> list[str]:
    """The modules of the SDK's package itself: ``inputs``, ``tuner``."""
    return [name for name in sdk_names() if name and "." not in name]


@cache
def _all_names() -> frozenset[str]:
    return frozenset().union(*sdk_names().values())


@cache
def _homes() -> dict[str, str]:
    return {name: home for home, names in _HERE.items() for name in names.split()}


class Placeholder(type):
    """The metaclass of placeholders: attributes of the class, such as ``Rule.sagemaker``, raise the error, too."""

    error: Callable[[], NotSupported]

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise cls.error()


def placeholder(module: str, name: str) -> type:
    """The class that replaces a name in a module of the SDK."""

    def error(*_: Any) -> NotSupported:
        from cloudtrain._sdk.left_out import refusal

        return refusal(f"sagemaker.{path}", _hint(module, name))

    def make(self: Any, *_: Any, **__: Any) -> None:
        if not _INERT.fullmatch(path):
            raise error()

    def use(self: Any, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        raise error()

    path = f"{module}.{name}".lstrip(".")
    members = {
        "__init__": make,
        "__getattr__": use,
        "error": error,
        "__module__": f"sagemaker.{module}".rstrip("."),
    }
    bases = (Exception,) if module == "exceptions" else ()  # for `except`
    return Placeholder(name, bases, members)


def _hint(module: str, name: str) -> str:
    from cloudtrain._sdk.members import UNSUPPORTED

    path = f"{module}.{name}".lstrip(".")
    for pattern, instead in _INSTEAD:
        if re.fullmatch(pattern, path):
            return UNSUPPORTED.get(instead) or instead.replace("{name}", name)
    return _V2.format(f".{module}" if module else "", name)


def others(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module of `cloudtrain.sagemaker`, for names of the SDK that it does not define."""
    own = module.removeprefix(PACKAGE).lstrip(".")

    def get_attribute(name: str) -> Any:
        for inner, found in ((f"{own}.{name}".lstrip("."), f"{module}.{name}"), (name, f"{PACKAGE}.{name}")):
            if inner in sdk_names():
                return import_module(found)
        current = _RENAMED.get(name, name)
        if current in _homes():
            return getattr(import_module(_homes()[current]), current)
        if current not in _all_names():  # a module of the SDK also has what it imports from others
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return placeholder(own, current)

    return get_attribute


class Finder:
    """Finds the modules of the SDK that have no file here. It is the last finder in ``sys.meta_path``."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        own = name.removeprefix(f"{PACKAGE}.")
        if own == name or own not in sdk_names():
            return None
        is_package = any(other.startswith(f"{own}.") for other in sdk_names())
        return ModuleSpec(name, cls(), is_package=is_package)  # type: ignore[arg-type] # no Loader: its import is slow

    def create_module(self, spec: ModuleSpec) -> None:
        """Use Python's default module."""

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__doc__ = f"Placeholders for `{name.removeprefix('cloudtrain.')}` of the SDK."
        known = sdk_names()[name.removeprefix(f"{PACKAGE}.")]
        vars(module).update({"__getattr__": others(name), "__dir__": lambda: sorted(known)})


def install() -> None:
    """Add `Finder` to ``sys.meta_path``, once."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
