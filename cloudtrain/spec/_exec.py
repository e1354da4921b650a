"""Checks early that arguments, hyperparameters and variables can be passed to a process: the limits of ``execve``."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from cloudtrain.contract import Settings, encode_hyperparameters, placeholder_channels, to_arguments
from cloudtrain.contract.arguments import is_argument_piece
from cloudtrain.contract.rank import CLOUDTRAIN
from cloudtrain.errors import InvalidJob
from cloudtrain.link.secret import RANKS_VARIABLE, VARIABLE

MAX_ARG_STRLEN = 128 * 1024
"""Maximum size of one ``execve`` string in bytes, including the NUL (Linux, ``include/uapi/linux/binfmts.h``)."""

_OWN = {*Settings.variables(), *astuple(CLOUDTRAIN)} | {
    "CLOUDTRAIN_AGENT_REPORT",
    "CLOUDTRAIN_DIE_WITH_PARENT",
    "CLOUDTRAIN_RUNTIME_PID",
    "CLOUDTRAIN_HEARTBEAT_FILE",
    "CLOUDTRAIN_RUN_DIR",
    VARIABLE,
    RANKS_VARIABLE,
}
"""Variables that cloudtrain sets for its runtime."""

_ARGUMENTS = {
    "CLOUDTRAIN_CHANNELS": "inputs",
    "CLOUDTRAIN_CHECKPOINT_URI": "checkpoint_s3_uri",
    "CLOUDTRAIN_COMPRESS_OUTPUT": "disable_output_compression",
    "CLOUDTRAIN_HANG_AFTER": "hang_after",
    "CLOUDTRAIN_HANG_TIMEOUT": "hang_timeout",
    "CLOUDTRAIN_HIDDEN_VARIABLES": "secrets",
    "CLOUDTRAIN_HOST_TIMEOUT": "host_timeout",
    "CLOUDTRAIN_JOB_NAME": "job_name",
    "CLOUDTRAIN_JOIN_TIMEOUT": "join_timeout",
    "CLOUDTRAIN_METRIC_DEFINITIONS": "metric_definitions",
    "CLOUDTRAIN_NOTIFY": "notify",
    "CLOUDTRAIN_ON_HANG": "on_hang",
    "CLOUDTRAIN_OUTPUT_URI": "output_path",
    "CLOUDTRAIN_SAMPLES": "samples",
    "CLOUDTRAIN_STOP_GRACE": "stop_grace",
    "CLOUDTRAIN_TIMELINE": "timeline",
}
"""The fields that set these variables."""


LONGEST_ARGUMENTS = 1024 * 1024
"""Maximum size of a job's ``arguments`` in bytes. ``execve`` accepts 2 MB, which includes the environment."""


def check_arguments(arguments: Sequence[str]) -> None:
    """Raises InvalidJob for an argument that cannot be passed to the script; the message has its index."""
    for number, argument in enumerate(arguments):
        _check_string(f"arguments[{number}]", argument, any_bytes=True)
    size = sum(len(argument.encode(errors="surrogateescape")) + len("\0") for argument in arguments)
    if size > LONGEST_ARGUMENTS:
        raise InvalidJob(
            f"arguments: have {size:,} bytes; a process accepts at most {LONGEST_ARGUMENTS:,}",
            hint="Store them in a file in source_dir, or in an input channel.",
        )


def check_hyperparameters(values: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Raises InvalidJob for a hyperparameter that cannot be passed to the script; the message names it.

    Args:
        as_json: how values are written: see `contract.to_arguments`.
    """
    try:
        encoded = encode_hyperparameters(values)
    except ValueError as error:
        raise InvalidJob(
            str(error), hint="Use numbers, strings, booleans, None, and lists and dicts of them."
        ) from None
    for key in values:
        if not re.fullmatch(r"[^=\0]+", key):
            raise InvalidJob(
                f"hyperparameters: {key!r} is not a valid name",
                hint="Use a name that is not empty and has no '='.",
            )
        if is_argument_piece(key):
            raise InvalidJob(
                f"hyperparameters: {key!r} is a name of cloudtrain's own, which carries the script's arguments",
                hint="Set the field arguments instead, or put them behind --.",
            )
        name, text = to_arguments({key: json.loads(encoded[key])}, as_json=as_json)
        _check_string(f"the name of hyperparameter {key!r}", name)
        _check_string(f"hyperparameter {key!r}", text)
        _check_text(f"hyperparameter {key!r}", encoded[key])


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InvalidJob for an invalid variable; the message names the variable, never its value."""
    for name, value in environment.items():
        check_variable("environment", name)
        check_value("environment", name, value)


def check_variable(field: str, name: str) -> None:
    """Raises InvalidJob if a process cannot have a variable with this name, or if it is cloudtrain's own."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InvalidJob(
            f"{field}: {name!r} is not a valid variable name",
            hint="Use letters, digits and '_', and begin with a letter or '_'.",
        )
    if name in _OWN:
        argument = _ARGUMENTS.get(name)
        raise InvalidJob(
            f"{field}: {name} is reserved for cloudtrain",
            hint=f"Set the field {argument} instead." if argument else "Remove it.",
        )


def check_value(field: str, name: str, value: str) -> None:
    """Raises InvalidJob if a process cannot have a variable with this value, which the message does not show."""
    _check_string(f"{field}: the value of {name}", value, prefix_size=len(name) + len("="))


def _check_string(what: str, text: str, prefix_size: int = 0, *, any_bytes: bool = False) -> None:
    """Raises InvalidJob if ``execve`` does not accept a string.

    Args:
        prefix_size: the number of bytes that precede ``text`` in the same string.
        any_bytes: also accept bytes that are not UTF-8, as Python decodes them from a command line.
    """
    if "\0" in text:
        raise InvalidJob(
            f"{what} contains a NUL character, which cannot be passed to a process", hint="Remove it."
        )
    size = _check_text(what, text, "surrogateescape" if any_bytes else "strict")
    limit = MAX_ARG_STRLEN - 1 - prefix_size
    if size > limit:
        raise InvalidJob(
            f"{what} has {size:,} bytes; a process accepts at most {limit:,}",
            hint="Store it in a file in source_dir, or in an input channel.",
        )


def _check_text(what: str, text: str, errors: str = "strict") -> int:
    """The size of ``text`` in bytes. Raises InvalidJob if it cannot be encoded."""
    try:
        return len(text.encode(errors=errors))
    except UnicodeEncodeError as error:
        raise InvalidJob(
            f"{what} is not text: UTF-8 has no {text[error.start]!r}", hint="Remove it."
        ) from None


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
