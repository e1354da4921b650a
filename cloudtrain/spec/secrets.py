"""Secrets: the field ``secrets``, which names variables of the submitting environment, and redaction of others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain._secrets.names import is_secret_name
from cloudtrain._secrets.urls import HIDDEN, has_credentials
from cloudtrain.errors import InvalidJob
from cloudtrain.spec._exec import check_value, check_variable

_NAMES = "Write only the names: secrets: [HF_TOKEN]. The values come from the environment in which you submit the job."


def check_secrets(names: Sequence[str], environment: Collection[str]) -> None:
    """Raises InvalidJob for an item that is not the name of a variable, or that is also in ``environment``.

    The message never shows a value, even if one is given instead of a name.
    """
    for number, name in enumerate(names):
        before, separator, _ = name.partition("=")
        if separator:
            problem = f"{before}=..." if before.isidentifier() else "text with '='"
            raise InvalidJob(f"secrets[{number}]: {problem} has a value", hint=_NAMES)
        if has_secret_format(name):
            raise InvalidJob(
                f"secrets[{number}]: is a secret itself, not the name of a variable", hint=_NAMES
            )
        check_variable(f"secrets[{number}]", name)
        if name in environment:
            raise InvalidJob(
                f"secrets[{number}]: {name} is in environment too", hint="Remove it from one of the two."
            )
        if name in names[:number]:
            raise InvalidJob(f"secrets[{number}]: {name} is listed twice", hint="Remove one of them.")


def secret_values(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The values of a job's secrets. Raises InvalidJob if ``environ`` lacks one, or a process cannot have it."""
    values = {}
    for name in names:
        if not environ.get(name):
            problem = "is empty" if name in environ else "is not set"
            raise InvalidJob(
                f"secrets: the variable {name} {problem}",
                hint=f"Set it where you submit the job, for example: read -rs {name} && export {name}",
            )
        check_value("secrets", name, environ[name])
        values[name] = environ[name]
    return values


REDACTED = HIDDEN


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is a secret: by its name, or by a value that is a URL with credentials or a known token."""
    return is_secret_name(name) or has_credentials(value) or has_secret_format(value)


def redact(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``, with the value of each likely secret replaced with ``***``."""
    return {name: REDACTED if is_secret(name, value) else value for name, value in environment.items()}
