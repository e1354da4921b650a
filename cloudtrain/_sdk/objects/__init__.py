"""Reads objects of the SageMaker SDK as arguments of an `Estimator`, for `Estimator.from_sagemaker`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.errors import InvalidJob


def read_object(obj: Any, instance_type: str | None = None, *, finds_image: bool = True) -> dict[str, Any]:
    """The arguments for an estimator of version 2, or a ``ModelTrainer`` of version 3; the SDK is not imported.

    Args:
        instance_type: replaces the object's own. With it, an object in local mode is not bound to this machine.
        finds_image: whether to get the image of local mode from the SDK.

    Raises:
        InvalidJob: ``obj`` is neither, or uses a feature that cloudtrain has no argument for.
    """
    names = [kind.__name__ for kind in type(obj).__mro__ if kind.__module__.startswith("sagemaker.")]
    if "EstimatorBase" in names:
        from cloudtrain._sdk.objects._v2 import read_estimator

        return read_estimator(obj, instance_type, finds_image=finds_image)
    if "ModelTrainer" in names:
        from cloudtrain._sdk.objects._v3 import read_model_trainer

        return read_model_trainer(obj, instance_type)
    raise InvalidJob(
        f"from_sagemaker: {type(obj).__name__} is neither an estimator of the SageMaker SDK nor a ModelTrainer",
        hint="Pass the object whose fit() or train() you would call.",
    )


def read_inputs(inputs: Any) -> Any:
    """``inputs``, with channels of the SDK's classes converted to cloudtrain's."""
    if isinstance(inputs, Mapping):
        return {name: read_inputs(channel) for name, channel in inputs.items()}
    if type(inputs).__module__.startswith("sagemaker.inputs"):
        from cloudtrain._sdk.objects._v2 import read_input

        return read_input(inputs)
    return inputs


__all__ = ["read_inputs", "read_object"]
