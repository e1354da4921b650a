"""Attributes of the SageMaker SDK's objects as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec.variables import is_variable


def get(obj: Any, path: str) -> Any:
    """The attribute at a dotted path; None if it does not exist, or is version 3's ``Unassigned``."""
    for name in path.split("."):
        obj = getattr(obj, name, None)
        if type(obj).__name__ == "Unassigned":
            return None
    return obj


def plain(value: Any, where: str) -> Any:
    """``value`` as dicts, lists and scalars. Raises InvalidJob if it contains anything else."""
    if value is None or (isinstance(value, (str, int, float, bool)) and type(value).__module__ == "builtins"):
        return value
    if is_variable(value):
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
        f"{where}: the SageMaker SDK's {type(value).__name__} cannot be converted to a plain value",
        hint="Pass a plain value.",
    )


def instance_group(group: Any) -> dict[str, Any]:
    return {name: get(group, name) for name in ("instance_group_name", "instance_type", "instance_count")}


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` as plain data, without those that are None or empty; ``False`` is kept."""
    read = {name: plain(value, name) for name, value in arguments.items() if value is not None}
    return {name: value for name, value in read.items() if value not in ({}, [], "")}
