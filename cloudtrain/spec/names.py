"""Names of jobs, and URIs of local files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cloudtrain._system.patterns import pattern
from cloudtrain.errors import InvalidJob

AUTO_IMAGE = "auto"
"""The ``image_uri`` that selects cloudtrain's image for the job."""

MAX_LENGTH = 63
"""The limit of SageMaker, and of a DNS label, which Kubernetes requires."""

_VALID = pattern(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def check_job_name(name: str) -> None:
    """Raises InvalidJob if ``name`` is too long or has characters other than letters, digits and inner hyphens."""
    if len(name) > MAX_LENGTH:
        raise InvalidJob(
            f"job name {name!r} has {len(name)} characters, {MAX_LENGTH} are allowed",
            hint=f"Use a shorter name, for example: {clean(name)}",
        )
    check_base_name(name)


def check_base_name(name: str) -> None:
    """Raises InvalidJob if ``name``, which may have any length, cannot be the start of a job's name."""
    if not _VALID.fullmatch(name):
        raise InvalidJob(
            f"job name {name!r}: only letters, digits, and hyphens between them are allowed",
            hint=f"For example: {clean(name) or 'my-job'}",
        )


def clean(text: str) -> str:
    """The nearest valid job name, or an empty string."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text)[:MAX_LENGTH].strip("-")


def _random_token() -> str:
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in os.urandom(4))


def new_job_name(
    base: str,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    token: Callable[[], str] = _random_token,
) -> str:
    """A readable, sortable and unique name: ``base``, the time in UTC to the second, and four random characters.

    A ``base`` that is too long loses its end, as in the SageMaker SDK.

    >>> new_job_name("digits", now=lambda: datetime(2026, 11, 21, 12, 5, 9), token=lambda: "k3f9")
    'digits-20261121-120509-k3f9'
    """
    suffix = f"-{now():%Y%m%d-%H%M%S}-{token()}"
    stem = base if _VALID.fullmatch(base) else clean(base) or "job"
    return stem[: MAX_LENGTH - len(suffix)] + suffix


def to_uri(place: str | Path, folder: Path = Path()) -> str:
    """Convert a path, relative to ``folder``, to a ``file://`` URI. A URI is unchanged.

    >>> to_uri("data", Path("/home/me"))
    'file:///home/me/data'
    >>> to_uri("s3://bucket/data")
    's3://bucket/data'
    """
    text = str(place)
    return text if "://" in text else (folder / text).absolute().as_uri()


def existing_to_uri(channel: Any) -> Any:
    """The URI of an existing file or folder. Anything else is unchanged, for validation."""
    is_path = isinstance(channel, (str, Path)) and "://" not in str(channel) and Path(channel).exists()
    return to_uri(channel) if is_path else channel
