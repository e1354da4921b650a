"""Converts hyperparameters between Python, ``hyperparameters.json`` and the script's command line.

Python values -> JSON strings in ``hyperparameters.json`` -> Python values -> ``--key value``.
Strings are preserved exactly: ``"1.10"`` never becomes ``1.1``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PLATFORM_PREFIX = "sagemaker_"
"""Keys with this prefix are the platform's; all others are the user's."""


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


def decode_hyperparameters(encoded: Mapping[str, str]) -> dict[str, Any]:
    """The values in ``hyperparameters.json``: parsed as JSON if valid, else the raw string."""
    return {key: _decode(text) for key, text in encoded.items()}


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def user_hyperparameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """The user's hyperparameters, without the platform's ``sagemaker_*``."""
    return {key: value for key, value in values.items() if not key.startswith(PLATFORM_PREFIX)}


def to_arguments(values: Mapping[str, Any]) -> list[str]:
    """Sorted ``--key value`` (``-k value`` for one character), ready for ``execve``.

    >>> to_arguments({"lr": 0.1, "e": 5, "version": "1.10", "flag": True, "none": None})
    ['-e', '5', '--flag', 'true', '--lr', '0.1', '--none', 'null', '--version', '1.10']
    """
    arguments = []
    for key in sorted(values):
        value = values[key]
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        arguments += [f"-{key}" if len(key) == 1 else f"--{key}", text]
    return arguments
