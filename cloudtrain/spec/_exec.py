"""What a command line and an environment can carry: the rules of ``execve`` and ``environ``, checked early."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cloudtrain.contract import Settings, encode_hyperparameters, to_arguments
from cloudtrain.errors import InvalidJob

MAX_ARG_STRLEN = 128 * 1024
"""Bytes of one string for ``execve``, the final NUL included (Linux, ``include/uapi/linux/binfmts.h``)."""

_OWN = {f"CLOUDTRAIN_{field.name.upper()}" for field in fields(Settings)} | {
    "CLOUDTRAIN_AGENT_REPORT",
    "CLOUDTRAIN_DIE_WITH_PARENT",
    "CLOUDTRAIN_HEARTBEAT_FILE",
    "CLOUDTRAIN_RUN_DIR",
}
"""Variables by which cloudtrain speaks to its own runtime."""

_ARGUMENTS = {
    "CLOUDTRAIN_CHANNELS": "inputs",
    "CLOUDTRAIN_CHECKPOINT_URI": "checkpoint_s3_uri",
    "CLOUDTRAIN_COMPRESS_OUTPUT": "disable_output_compression",
    "CLOUDTRAIN_HANG_TIMEOUT": "hang_timeout",
    "CLOUDTRAIN_JOB_NAME": "job_name",
    "CLOUDTRAIN_METRIC_DEFINITIONS": "metric_definitions",
    "CLOUDTRAIN_OUTPUT_URI": "output_path",
    "CLOUDTRAIN_STOP_GRACE": "stop_grace",
    "CLOUDTRAIN_TIMELINE": "timeline",
}
"""The fields that users have for them."""


def check_hyperparameters(values: Mapping[str, Any]) -> None:
    """Raises InvalidJob, naming the key, for what cannot become an argument of the script."""
    try:
        encode_hyperparameters(values)
    except ValueError as error:
        raise InvalidJob(
            str(error), hint="Numbers, strings, booleans, None, and lists and dicts of them can be."
        ) from None
    for key, value in values.items():
        if not re.fullmatch(r"[^=\0]+", key):
            raise InvalidJob(
                f"hyperparameters: {key!r} is no name for one", hint="It is not empty, and has no '=' in it."
            )
        name, text = to_arguments({key: value})
        _check_string(f"the name of hyperparameter {key!r}", name)
        _check_string(f"hyperparameter {key!r}", text)


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InvalidJob, naming the variable and never its value."""
    for name, value in environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InvalidJob(f"environment: {name!r} is no name for a variable")
        if name in _OWN:
            argument = _ARGUMENTS.get(name)
            raise InvalidJob(
                f"environment: {name} is cloudtrain's own",
                hint=f"Use the argument {argument} instead." if argument else "Leave it out.",
            )
        _check_string(f"environment: the value of {name}", value, beside=len(name) + len("="))


def _check_string(what: str, text: str, beside: int = 0) -> None:
    """``beside`` is the number of bytes that stand in the same string."""
    if "\0" in text:
        raise InvalidJob(f"{what} has a NUL in it, which no process can be given")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidJob(f"{what} is not text: UTF-8 has no {text[error.start]!r}") from None
    limit = MAX_ARG_STRLEN - 1 - beside
    if size > limit:
        raise InvalidJob(
            f"{what} has {size:,} bytes, a process can be given {limit:,} (128 KiB less its end)",
            hint="Put it into a file of source_dir, or into a channel.",
        )
