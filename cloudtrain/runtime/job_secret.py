"""Finds the job secret on this host."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, MutableMapping

from cloudtrain.contract import Paths
from cloudtrain.errors import InvalidJob
from cloudtrain.link.secret import VARIABLE, derive, fresh_secret
from cloudtrain.runtime.host_config import SECRET_CHANNEL

SECRET_FILE = "secret"
"""The file with the secret: in ``input/config``, or in the channel `SECRET_CHANNEL` on SageMaker."""

_HINT = (
    "Set CLOUDTRAIN_SECRET to the same random value on all hosts, for example in the job's environment: the output of "
    'python3 -c "import secrets; print(secrets.token_hex(32))"'
)


def take_secret(paths: Paths, environ: MutableMapping[str, str], hosts: int) -> str:
    """The job secret. Removes it from ``environ`` and, where possible, from the disk.

    Args:
        hosts: the number of the job's hosts. A single host generates its own secret.

    Raises:
        InvalidJob: the secret is missing or too short.
    """
    secret = environ.pop(VARIABLE, "")
    for path in (paths.input_config / SECRET_FILE, paths.channel(SECRET_CHANNEL) / SECRET_FILE):
        with contextlib.suppress(OSError):
            if not secret:
                secret = path.read_text(encoding="utf-8", errors="replace").strip()
            path.unlink()
            if path.parent.name == SECRET_CHANNEL:
                path.parent.rmdir()
    if hosts == 1:
        return fresh_secret()
    if not re.fullmatch(r"[ -~]{32,1024}", secret):
        what = "is shorter than 32 characters, or is not all ASCII" if secret else "is missing"
        raise InvalidJob(f"the secret of this job, which its {hosts} hosts share, {what}", hint=_HINT)
    return secret


def job_identity(paths: Paths, environ: Mapping[str, str]) -> str:
    """The job's unique identity in all attempts; empty without a job secret. Call it before `take_secret`."""
    secret = given_secret(paths, environ)
    return derive(secret, "identity").hex() if secret else ""


def given_secret(paths: Paths, environ: Mapping[str, str]) -> str:
    """The job secret, before `take_secret` removes it; empty if there is none."""
    secret = environ.get(VARIABLE, "")
    if not secret:
        with contextlib.suppress(OSError):
            secret = (paths.input_config / SECRET_FILE).read_text(encoding="utf-8", errors="replace").strip()
    return secret
