"""Overrides of a job's fields on the command line: ``--set a.b=1``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec.bounds import DEEPEST, LONGEST_SHOWN
from cloudtrain.spec.documents import parse_yaml

_EXAMPLE = "For example: --set hyperparameters.lr=0.1"


def apply_overrides(fields: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """``fields``, overridden by each ``path=value`` in ``settings``. Values are YAML.

    Raises:
        InvalidJob: a setting has no ``=``, or a part of its path is not a mapping.

    >>> apply_overrides({"hyperparameters": {"lr": 1}}, ["hyperparameters.lr=0.1", "instance_count=2"])
    {'hyperparameters': {'lr': 0.1}, 'instance_count': 2}
    """
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator or not path:
            raise InvalidJob(
                f"--set {path[:LONGEST_SHOWN]}: does not have the form FIELD=VALUE", hint=_EXAMPLE
            )
        if path.count(".") > DEEPEST:
            raise InvalidJob(f"--set {path[:LONGEST_SHOWN]}: has more than {DEEPEST} parts", hint=_EXAMPLE)
        name = f"--set {path[:LONGEST_SHOWN]}"
        value = parse_yaml(text, name, field=path)
        fields = _put(fields, path.split("."), value, name, "--set FIELD='{NAME: VALUE}'")
    return fields


def put_field(fields: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """``fields`` with ``value`` at the dotted ``path``. Raises InvalidJob if a part of the path is not a mapping."""
    return _put(fields, path.split("."), value, path[:LONGEST_SHOWN], "FIELD: {NAME: VALUE}")


def _put(fields: Any, path: list[str], value: Any, name: str, example: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        part = path[0][:LONGEST_SHOWN]
        problem = f"cannot set {part!r} in a field that is not a mapping"
        raise InvalidJob(f"{name}: {problem}", hint=f"Set the whole field: {example}.")
    key, *rest = path
    return {**fields, key: _put(fields.get(key, {}), rest, value, name, example) if rest else value}
