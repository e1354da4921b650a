"""Removes secrets from data that is shown or stored."""

from __future__ import annotations

from collections.abc import Mapping

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain._secrets.names import is_secret_name
from cloudtrain._secrets.urls import HIDDEN, has_credentials

REDACTED = HIDDEN


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret: by its name, or by a value that is a URL with credentials or a known token."""
    return is_secret_name(name) or has_credentials(value) or has_secret_format(value)


def redact(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``, with the value of each likely secret replaced with ``***``."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in environment.items()}
