"""Warnings about a job that is valid, but probably not what its user intends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain._secrets.names import is_secret_name, split_name
from cloudtrain._secrets.urls import has_credentials
from cloudtrain._secrets.values import looks_random
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.hyperparameters import PLATFORM_PREFIX
from cloudtrain.spec.secrets import is_secret

if TYPE_CHECKING:
    from cloudtrain.spec.job import TrainingJob

_PASSWORDS = {"apikey", "passphrase", "passwd", "password", "secret"}
_LICENSES = {"licence", "license"}
_REFERENCE = pattern(r"[/~.$<{]|\w+://|arn:|\S+@|[A-Za-z]:\\")
"""The beginning of a value that only names a place: a path, a variable, a URI, PORT@SERVER."""
_SHORTEST = 6
"""The fewest characters of a value that counts as a password because of its name."""


def job_warnings(job: TrainingJob) -> list[str]:
    """Warnings, one sentence each: secrets that requests show, and values that have no effect."""
    found = [
        f"{place} looks like a secret, which requests and logs show: pass it with secrets"
        for place in _exposed(job)
    ]
    names = sorted(name for name in job.hyperparameters if name.startswith(PLATFORM_PREFIX))
    if names and job.entry_point:
        found.append(
            f"hyperparameters that begin with {PLATFORM_PREFIX} are the platform's: cloudtrain sets its own, and the "
            f"script gets none of {', '.join(names)}"
        )
    if job.checkpoint_local_path and not job.checkpoint_s3_uri:
        found.append(
            f"nothing is synced with checkpoint_local_path ({job.checkpoint_local_path}), because checkpoint_s3_uri is "
            "not set"
        )
    for number, definition in enumerate(job.metric_definitions):
        if not re.compile(definition["Regex"]).groups:
            found.append(
                f"metric_definitions[{number}].Regex has no group, and finds no value: put the pattern of the number "
                "in parentheses, as in 'loss=([0-9.]+)'"
            )
    return found


def _exposed(job: TrainingJob) -> Iterator[str]:
    """The places of likely secrets, without their values."""
    for name, value in job.hyperparameters.items():
        if isinstance(value, str) and is_exposed_secret(name, value):
            yield f"hyperparameters.{name}"
    for name, value in job.environment.items():
        if _is_license(name, value):
            yield f"environment.{name}"
    yield from _exposed_arguments(job.arguments)
    for tag in job.tags:
        if is_exposed_secret(str(tag.get("Key", "")), str(tag.get("Value", ""))):
            yield f"the tag {tag.get('Key')}"


def _exposed_arguments(arguments: Sequence[str]) -> Iterator[str]:
    option = ""
    for number, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if not argument.startswith("-"):
            name, value = option, argument  # the value of the option before it, or an argument by itself
        elif not separator:
            option = argument.lstrip("-")
            continue
        name = name.lstrip("-")
        option = ""
        if is_exposed_secret(name, value):
            yield f"arguments[{number}]" + (f" (--{name})" if name else "")


def is_exposed_secret(name: str, value: str) -> bool:
    """Whether a hyperparameter, an argument or a tag is likely to be a secret, and not the name or the file of one."""
    if has_secret_format(value) or has_credentials(value):
        return True
    if not is_secret_name(name):
        return False
    parts = split_name(name)
    names_one = not _PASSWORDS.isdisjoint(parts) or ("api", "key") in itertools.pairwise(parts)
    is_password = names_one and len(value) >= _SHORTEST and not _REFERENCE.match(value)
    return is_password or looks_random(value)


def _is_license(name: str, value: str) -> bool:
    """Whether a variable contains the key of a licence, such as that of a solver, rather than its file or server."""
    return (
        not _LICENSES.isdisjoint(split_name(name))
        and not is_secret(name, value)
        and not _REFERENCE.match(value)
        and looks_random(value)
    )
