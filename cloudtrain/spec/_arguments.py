"""The script's command line: its ``arguments``, and values of ``hyperparameters`` that are not plain."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Sequence
from typing import Any

from cloudtrain.contract import placeholder_channels
from cloudtrain.errors import InvalidJob


def argument_list(value: Any) -> Any:
    """``value`` with numbers as strings, for validation.

    Raises InvalidJob for two mistakes: a command line in one string, and ``{channel.train}`` without quotes in YAML.
    """
    if isinstance(value, str):
        raise InvalidJob(
            "arguments: expected a list of strings, got a string",
            hint=f"Write a list, with one item for each argument: {json.dumps(_split(value), ensure_ascii=False)}",
        )
    if not isinstance(value, list):
        return value
    for number, argument in enumerate(value):
        if isinstance(argument, dict) and len(argument) == 1 and None in argument.values():
            [name] = argument
            raise InvalidJob(
                f"arguments[{number}]: expected a string, got a mapping",
                hint=f'YAML reads {{...}} as a mapping. Put it in quotes: "{{{name}}}"',
            )
    return [number_to_text(argument) for argument in value]


def number_to_text(value: Any) -> Any:
    """A number as a string; any other value unchanged, for validation."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number and math.isfinite(value) else value


def without_numpy(value: Any) -> Any:
    """``value`` with NumPy's scalars, also in lists and mappings, as Python's numbers, booleans and strings."""
    if isinstance(value, dict):
        return {key: without_numpy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(without_numpy, value)) if type(value) in (list, tuple) else value
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if is_scalar else value


def check_channels(arguments: Sequence[str], channels: Collection[str]) -> None:
    """Raises InvalidJob if an argument has a placeholder ``{channel.NAME}`` of a channel that the job does not have."""
    for number, argument in enumerate(arguments):
        for name in placeholder_channels(argument):
            if name not in channels:
                known = f"Its channels: {', '.join(sorted(channels))}." if channels else "It has no inputs."
                raise InvalidJob(
                    f"arguments[{number}]: the job has no channel {name!r}, which {{channel.{name}}} refers to",
                    hint=f"{known} For the text {{channel.{name}}}, write {{{{channel.{name}}}}}.",
                )


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote
        return text.split()
