"""Records what a user can set on the objects of the SageMaker SDK, for the test of `Estimator.from_sagemaker`.

    python record_attributes.py    # writes ../data/sdk_objects/v2_arguments.json or v3_attributes.json

The interpreter needs ``sagemaker``, version 2 or 3.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "sdk_objects"


def main() -> None:
    version = importlib.metadata.version("sagemaker")
    name, found = (
        ("v2_arguments", version_2()) if version.startswith("2.") else ("v3_attributes", version_3())
    )
    text = json.dumps({"sagemaker": version, **found}, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n")


def version_2() -> dict[str, list[str]]:
    """The arguments of each class."""
    from sagemaker import debugger, inputs, instance_group
    from sagemaker.estimator import Estimator, Framework
    from sagemaker.huggingface import HuggingFace
    from sagemaker.mxnet import MXNet
    from sagemaker.pytorch import PyTorch
    from sagemaker.sklearn import SKLearn
    from sagemaker.tensorflow import TensorFlow
    from sagemaker.xgboost import XGBoost

    kinds = [
        *(Estimator, Framework, PyTorch, TensorFlow, HuggingFace, MXNet, SKLearn, XGBoost),
        *(inputs.TrainingInput, inputs.FileSystemInput, inputs.ShuffleConfig, instance_group.InstanceGroup),
        *(debugger.DebuggerHookConfig, debugger.CollectionConfig, debugger.TensorBoardOutputConfig),
        *(debugger.ProfilerConfig, debugger.Profiler),
    ]
    own = ("self", "args", "kwargs")
    return {
        kind.__name__: [name for name in inspect.signature(kind.__init__).parameters if name not in own]
        for kind in kinds
    }


def version_3() -> dict[str, list[str]]:
    """The paths of all attributes below a ``ModelTrainer``; the items of a list share its path."""
    from sagemaker.train import ModelTrainer
    from sagemaker.train.distributed import MPI, Torchrun

    paths: set[str] = set()
    fields = {name: field.annotation for name, field in ModelTrainer.model_fields.items()}
    private = typing.get_type_hints(ModelTrainer)
    fields |= {name: private.get(name) for name in ModelTrainer.__private_attributes__}
    fields["distributed"] = MPI | Torchrun
    for name in ("sagemaker_session", "config_mgr", "_latest_training_job"):
        fields[name] = None  # their attributes are not settings
    for name, annotation in fields.items():
        paths |= set(_paths(annotation, name))
    return {"ModelTrainer": sorted(paths)}


def _paths(annotation: Any, path: str) -> Iterator[str]:
    models = list(_models(annotation))
    if not models or path == "input_data_config.data_source":
        yield path  # a data_source may also be a string
    for model in models:
        for name, field in model.model_fields.items():
            yield from _paths(field.annotation, f"{path}.{name}")


def _models(annotation: Any) -> Iterator[Any]:
    """The classes with fields in an annotation, however deep."""
    if hasattr(annotation, "model_fields"):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models(part)


if __name__ == "__main__":
    main()
