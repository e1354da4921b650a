"""The parameters of a job as text, without secrets, and other facts from its description or its request."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from cloudtrain.contract.arguments import decode_arguments
from cloudtrain.contract.hyperparameters import decode_hyperparameters, to_arguments, user_hyperparameters
from cloudtrain.spec.secrets import REDACTED, is_secret

if TYPE_CHECKING:
    from cloudtrain.spec import TrainingJob

MOST = 1000
"""The most parameters of a job."""
LONGEST = 1000
"""The most characters of a value; the rest is cut off."""
ON = "true"
"""The value that is stored for an option without a value."""
_OPTION = re.compile(r"(?P<dashes>--?)?(?P<name>[A-Za-z_][\w./-]*)(=(?P<value>.*))?", re.DOTALL)
_NUMBER = re.compile(r"-\.?\d")


def facts_of_job(job: TrainingJob) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of the history that are known when ``job`` is submitted, and its parameters."""
    facts = {
        "owner": owner(),
        "git_commit": job.source.git_commit or None if job.source else None,
        "script": job.entry_point,
        "instance_type": ", ".join(dict.fromkeys(job.instance_types)) or None,
        "instance_count": job.host_count,
    }
    return facts, parameters(job.hyperparameters, job.arguments)


def facts_of_request(body: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Like `facts_of_job`, from the request of a supervised platform or of SageMaker. Other bodies yield nothing."""
    encoded = body.get("hyperparameters") or body.get("HyperParameters") or {}
    arguments: Sequence[str] = body.get("arguments") or ()
    if not arguments:
        with contextlib.suppress(ValueError):
            arguments = decode_arguments(encoded)
    values = decode_hyperparameters(encoded)
    hosts = body.get("ResourceConfig") or {}
    groups = body.get("instance_groups") or hosts.get("InstanceGroups") or ()
    kinds = [group.get("instance_type") or group.get("InstanceType") for group in groups]
    counts = [group.get("instance_count") or group.get("InstanceCount") for group in groups]
    facts = {
        "script": values.get("sagemaker_program"),
        "instance_type": ", ".join(dict.fromkeys(kinds))
        or body.get("instance_type")
        or hosts.get("InstanceType"),
        "instance_count": sum(counts) or body.get("host_count") or hosts.get("InstanceCount"),
    }
    commit = (body.get("settings") or {}).get("git_commit")
    if commit:
        facts["git_commit"] = commit
    return facts, parameters(user_hyperparameters(values), arguments)


def parameters(hyperparameters: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, str]:
    """The hyperparameters of a script, and the options among its arguments, as text.

    >>> parameters({"lr": 0.1, "amp": True}, ["--epochs", "5", "--api-key=k", "--fast", "optimizer.name=adam", "data"])
    {'lr': '0.1', 'amp': 'true', 'epochs': '5', 'api-key': '***', 'fast': 'true', 'optimizer.name': 'adam'}
    """
    found = {name: _spelled(value) for name, value in hyperparameters.items()}
    found.update(_options(arguments))
    shown = ((name, REDACTED if is_secret(name, value) else value) for name, value in found.items())
    return {plain(name): plain(value[:LONGEST]) for name, value in [*shown][:MOST]}


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else to_arguments({"value": value})[1]


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options among arguments: ``--name value``, ``--name=value``, ``name=value``, and options without a value."""
    rest = list(arguments)
    while rest:
        match = _OPTION.fullmatch(rest.pop(0))
        if not match or not (match["dashes"] or match["value"] is not None):
            continue
        value = match["value"]
        if value is None:
            has_value = rest and (not rest[0].startswith("-") or _NUMBER.match(rest[0]))
            value = rest.pop(0) if has_value else ON
        yield match["name"], value


def plain(text: str) -> str:
    """``text`` as databases can store it, without NUL characters and bytes that are not UTF-8."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


@cache
def owner() -> str:
    """The user who submits jobs on this machine, as ``user@machine``."""
    import getpass

    user = "?"
    with contextlib.suppress(OSError, KeyError, ImportError):  # a user without a name
        user = getpass.getuser()
    return plain(f"{user}@{socket.gethostname()}")
