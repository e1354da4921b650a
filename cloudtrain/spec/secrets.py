"""The field ``secrets``: names of variables whose values come from the environment that submits the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain.errors import InvalidJob
from cloudtrain.spec._exec import check_value, check_variable

_NAMES = "Write only the names: secrets: [HF_TOKEN]. The values come from the environment in which you submit the job."


def check_secrets(names: Sequence[str], environment: Collection[str]) -> None:
    """Raises InvalidJob for an item that is not the name of a variable, or that ``environment`` has too.

    The message never shows a value, even where one is given in place of a name.
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
    """The values of a job's secrets. Raises InvalidJob if ``environ`` lacks one, or no process could have it."""
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
