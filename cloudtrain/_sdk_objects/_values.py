"""Values of the SageMaker SDK's objects, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob


def get(obj: Any, path: str) -> Any:
    """The attribute at a dotted path; None where there is none, or version 3 has left it unassigned."""
    for name in path.split("."):
        obj = getattr(obj, name, None)
        if type(obj).__name__ == "Unassigned":
            return None
    return obj


def plain(value: Any, where: str) -> Any:
    """``value`` of dicts, lists and scalars only. Raises InvalidJob where it holds anything else."""
    if value is None or (isinstance(value, (str, int, float, bool)) and type(value).__module__ == "builtins"):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item, where) for item in value]
    if hasattr(value, "instance_group_name"):
        return instance_group(value)
    raise InvalidJob(
        f"{where}: {type(value).__name__} of the SageMaker SDK has no meaning outside of it",
        hint="Give the object a plain value: a pipeline's variables are only known to the pipeline.",
    )


def instance_group(group: Any) -> dict[str, Any]:
    return {name: get(group, name) for name in ("instance_group_name", "instance_type", "instance_count")}


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` as plain data, without those that are None or empty; ``False`` is a value."""
    read = {name: plain(value, name) for name, value in arguments.items() if value is not None}
    return {name: value for name, value in read.items() if value not in ({}, [], "")}
