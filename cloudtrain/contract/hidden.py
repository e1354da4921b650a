"""Hides secrets in ``SM_TRAINING_ENV``, which Weights & Biases copies into the configuration of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain._secrets.hiding import ValueHider
from cloudtrain._secrets.names import is_secret_name
from cloudtrain._secrets.urls import HIDDEN, has_credentials

_FIELD = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*")
"""The name of a setting, as in ``wandb.api_key=...`` of Hydra and OmegaConf."""
_NOTHING = ValueHider(())


def without_secrets(values: Mapping[str, Any], hider: ValueHider) -> dict[str, Any]:
    """``values`` with ``***`` for likely secrets, by name or by content, and for the values that ``hider`` knows.

    Numbers stay: ``max_token`` is not a secret.
    """
    return {name: _hidden(name, value, hider) for name, value in values.items()}


def _hidden(name: str, value: Any, hider: ValueHider) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value, hider)
    if isinstance(value, str):
        return HIDDEN if is_secret_name(name) or _is_secret(value) else hider.hide_all(value)
    if isinstance(value, Sequence):
        return hider.hide_all(_hidden_arguments([*value]))
    return value


def _is_secret(value: str) -> bool:
    return has_credentials(value) or has_secret_format(value)


def _hidden_arguments(arguments: list[Any]) -> list[Any]:
    """A list, which may be a command line: also the values of options whose names are those of secrets."""
    hidden: list[Any] = []
    option = ""
    for argument in arguments:
        if not isinstance(argument, str):
            hidden.append(_hidden("", argument, _NOTHING))
            continue
        name, separator, value = argument.partition("=")
        is_option = argument.startswith("-")
        if not argument or (is_option and not separator):
            hidden.append(argument)
        elif not is_option and (is_secret_name(option) or _is_secret(argument)):
            hidden.append(HIDDEN)
        elif separator and (is_option or _FIELD.fullmatch(name)):
            is_secret = is_secret_name(name.lstrip("-")) or _is_secret(value)
            hidden.append(f"{name}={HIDDEN}" if is_secret else argument)
        else:
            hidden.append(argument)
        option = argument.lstrip("-") if argument.startswith("-") and not separator else ""
    return hidden
