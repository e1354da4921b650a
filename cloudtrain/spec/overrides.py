"""Overrides of a job's fields on the command line: ``--set a.b=1`` and ``-- --epochs 5``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.spec.documents import parse_yaml


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
            raise InvalidJob(f"--set {setting}: does not have the form FIELD=VALUE")
        fields = _put(fields, path.split("."), parse_yaml(text, f"--set {path}"), setting)
    return fields


def _put(fields: Any, path: list[str], value: Any, setting: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise InvalidJob(f"--set {setting}: cannot set {path[0]!r} in a field that is not a mapping")
    key, *rest = path
    return {**fields, key: _put(fields.get(key, {}), rest, value, setting) if rest else value}


def script_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """The hyperparameters that correspond to the arguments of a script.

    Accepts ``--lr 0.1``, ``--lr=0.1``, ``-e 5`` and flags (``--amp`` becomes true). The script must get exactly what
    the user typed, so a number that Python would format differently (``1e-3``, ``1.10``, ``007``) stays a string. In
    `apply_overrides`, whose values are YAML, ``1e-3`` is a number.

    Raises:
        InvalidJob: an argument has no name.

    >>> script_arguments(["--epochs", "5", "--version=1.10", "--amp"])
    {'epochs': 5, 'version': '1.10', 'amp': True}
    """
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name = argument.lstrip("-")
        if not argument.startswith("-") or not name:
            raise InvalidJob(
                f"script argument {argument!r} has no name",
                hint="Arguments become hyperparameters, which have names: write --name value.",
            )
        name, separator, text = name.partition("=")
        if separator:
            values[name] = _value(text)
        elif rest and not _is_option(rest[0]):
            values[name] = _value(rest.pop(0))
        else:
            values[name] = True
    return values


def _is_option(text: str) -> bool:
    """Whether ``text`` is an option, such as ``--lr``, and not a negative number, such as ``-0.5``."""
    return text.startswith("-") and len(text) > 1 and not text[1:2].isdigit() and text[1:2] != "."


def _value(text: str) -> Any:
    """The number, if Python would format it exactly like ``text``; otherwise ``text``."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text
