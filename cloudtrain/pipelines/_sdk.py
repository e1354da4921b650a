"""The classes of the installed SageMaker SDK that a pipeline needs."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from cloudtrain.errors import CloudtrainError

_PLACES = {
    "steps": ("sagemaker.mlops.workflow.steps", "sagemaker.workflow.steps"),
    "properties": ("sagemaker.core.workflow.properties", "sagemaker.workflow.properties"),
    "functions": ("sagemaker.core.workflow.functions", "sagemaker.workflow.functions"),
}
"""The modules of version 3, and of version 2."""


@cache
def sdk_module(name: str) -> Any:
    """The module called ``name`` of the SDK. Raises CloudtrainError if none is installed."""
    for place in _PLACES[name]:
        try:
            return import_module(place)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("sagemaker"):
                raise
    raise CloudtrainError(
        "a step of a pipeline needs the SageMaker SDK, whose Pipeline it goes into",
        hint="Install it: pip install 'sagemaker<3', or pip install sagemaker for version 3.",
    )
