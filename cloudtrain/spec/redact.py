"""Removes secrets from data that is shown or stored."""

from __future__ import annotations

import re
from collections.abc import Mapping

REDACTED = "***"

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_?KEY|SECRET|SECRETS|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PRIVATE_?KEY|AUTH|KEY)"
    r"(?:$|_)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether an environment variable with this name probably contains a secret.

    >>> [is_secret_name(name) for name in ("WANDB_API_KEY", "HF_TOKEN", "OMP_NUM_THREADS", "KEYBOARD")]
    [True, True, False, False]
    """
    return bool(_SECRET_NAME.search(name))


def redact(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``, with the value of each likely secret replaced with ``***``."""
    return {name: REDACTED if is_secret_name(name) else value for name, value in environment.items()}
