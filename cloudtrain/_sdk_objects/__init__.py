"""The SageMaker SDK's own objects, as arguments of an `Estimator`: what `Estimator.from_sagemaker` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain._sdk_objects import _v2, _v3
from cloudtrain.errors import InvalidJob


def read_object(obj: Any) -> dict[str, Any]:
    """The arguments for an estimator of version 2, or a ``ModelTrainer`` of version 3; the SDK is not imported.

    Raises:
        InvalidJob: it is neither, or wants something that cloudtrain has no argument for.
    """
    names = [kind.__name__ for kind in type(obj).__mro__ if kind.__module__.startswith("sagemaker.")]
    if "EstimatorBase" in names:
        return _v2.read_estimator(obj)
    if "ModelTrainer" in names:
        return _v3.read_model_trainer(obj)
    raise InvalidJob(
        f"from_sagemaker: {type(obj).__name__} is no estimator of the SageMaker SDK, nor a ModelTrainer",
        hint="Give the object that has fit() or train().",
    )


def read_inputs(inputs: Any) -> Any:
    """``inputs`` with the channels of the SDK's own classes as ours; all else as it is."""
    if isinstance(inputs, Mapping):
        return {name: read_inputs(channel) for name, channel in inputs.items()}
    if type(inputs).__module__.startswith("sagemaker.inputs"):
        return _v2.read_input(inputs)
    return inputs


__all__ = ["read_inputs", "read_object"]
