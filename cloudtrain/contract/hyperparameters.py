"""Converts hyperparameters between Python, ``hyperparameters.json`` and the script's command line.

Python values -> JSON strings in ``hyperparameters.json`` -> Python values -> ``--key value``.
Strings are preserved exactly: ``"1.10"`` never becomes ``1.1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cloudtrain.contract.arguments import is_argument_piece
from cloudtrain.contract.documents import is_program_text, parse_json
from cloudtrain.contract.paths import DEFAULT_BASE, Paths

PLATFORM_PREFIX = "sagemaker_"
"""Keys with this prefix are the platform's; all others are the user's."""

ENCODING = "sagemaker_hyperparameter_encoding"
"""The platform's key with one of `ENCODINGS`."""

ENCODINGS = ("sagemaker", "json")
"""How values that are not strings are written on the command line."""


def encode_hyperparameters(values: Mapping[str, Any]) -> dict[str, str]:
    """Each value as JSON text, as CreateTrainingJob expects it.

    Raises:
        ValueError: a value cannot be written as JSON (NaN and infinity cannot); the message names the key.
    """
    encoded = {}
    for key, value in values.items():
        try:
            encoded[key] = json.dumps(value, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"hyperparameter {key!r} cannot be written as JSON: {error}") from None
    return encoded


def check_hyperparameters(encoded: object) -> None:
    """Raises ValueError, which names the key, unless ``encoded`` can be the content of ``hyperparameters.json``."""
    if not isinstance(encoded, Mapping):
        raise ValueError("it is not an object")
    for key, text in encoded.items():
        if not is_program_text(key) or not key or "=" in key:
            raise ValueError(f"{key[:100]!r} is not a name of a hyperparameter")
        if not is_program_text(text):
            raise ValueError(f"{key[:100]} is not a string that a program can receive")


def decode_hyperparameters(encoded: Mapping[str, str]) -> dict[str, Any]:
    """The values in ``hyperparameters.json``: parsed as JSON if valid, else the raw string.

    Leaves out the pieces of `contract.arguments`, each of which is only a part of a JSON text.
    """
    return {key: _decode(text) for key, text in encoded.items() if not is_argument_piece(key)}


def _decode(text: str) -> Any:
    try:
        value = parse_json(text)
    except ValueError:
        return text
    spelled = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if is_program_text(spelled) else text


def host_hyperparameters(encoded: Mapping[str, str], paths: Paths) -> dict[str, Any]:
    """The decoded hyperparameters on a host with ``paths``. A ``model_dir`` below ``/opt/ml`` moves below its base."""
    values = decode_hyperparameters(encoded)
    folder = values.get("model_dir")
    if isinstance(folder, str) and f"{folder}/".startswith(f"{DEFAULT_BASE}/"):
        values["model_dir"] = f"{paths.base}{folder[len(DEFAULT_BASE) :]}"
    return values


def user_hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """The user's hyperparameters, without the platform's ``sagemaker_*``."""
    return {key: value for key, value in values.items() if not key.startswith(PLATFORM_PREFIX)}


def to_arguments(values: Mapping[str, Any], *, as_json: bool = False) -> list[str]:
    """Sorted ``--key value`` (``-k value`` for one character), ready for ``execve``.

    Values are written as in SageMaker's toolkit (``sagemaker_training.mapping.to_cmd_args``): as by Python's ``str``,
    but None is empty and a mapping is ``key=value,key=value``.

    Args:
        as_json: write values that are not strings as JSON instead.

    >>> to_arguments({"lr": 0.1, "e": 5, "version": "1.10", "flag": True, "none": None, "opt": {"b": 2, "a": 1}})
    ['-e', '5', '--flag', 'True', '--lr', '0.1', '--none', '', '--opt', 'a=1,b=2', '--version', '1.10']
    """
    arguments = []
    for key in sorted(values):
        value = values[key]
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False) if as_json else _spelled(value)
        arguments += [f"-{key}" if len(key) == 1 else f"--{key}", value]
    return arguments


def _spelled(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return str(value)
