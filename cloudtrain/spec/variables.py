"""Recognises variables of SageMaker Pipelines, which have no value before their pipeline runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cloudtrain.errors import InvalidJob


def is_variable(value: Any) -> bool:
    """Whether ``value`` is a pipeline variable of the SageMaker SDK, version 2 or 3; the SDK is not imported."""
    return is_of_sdk(value) and hasattr(type(value), "expr") and hasattr(type(value), "to_string")


def is_of_sdk(value: Any, name: str | None = None) -> bool:
    """Whether ``value`` is an instance of a class of the SageMaker SDK; with ``name``, of the class with this name."""
    kinds = (kind for kind in type(value).__mro__ if kind.__module__.startswith("sagemaker."))
    return any(name in (None, kind.__name__) for kind in kinds)


def variables(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The pipeline variables in ``value``, with their paths: ``inputs.train.s3_data``, ``subnets[0]``."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from variables(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from variables(item, f"{path}[{number}]")
    elif is_variable(value):
        yield path, value


def check_no_variables(fields: Mapping[str, Any]) -> None:
    """Raises InvalidJob for a pipeline variable: outside a pipeline, it has no value."""
    for path, value in variables(fields):
        raise InvalidJob(
            f"{path}: {type(value).__name__} is a pipeline variable, which has no value before its pipeline runs",
            hint="Pass a plain value; or make the job a step of the pipeline: cloudtrain.pipelines.TrainingStep.",
        )
