"""Names of jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cloudtrain.errors import InvalidJob

if TYPE_CHECKING:
    from cloudtrain.spec.job import TrainingJob

AUTO_IMAGE = "auto"
"""In place of an ``image_uri``: cloudtrain's own image for the job."""

MAX_LENGTH = 63
"""SageMaker's, and that of a DNS label, which Kubernetes wants."""

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def check_job_name(name: str) -> None:
    """Raises InvalidJob where ``name`` is too long, or is not of letters, digits and inner hyphens."""
    if len(name) > MAX_LENGTH:
        raise InvalidJob(
            f"job name {name!r} has {len(name)} characters, {MAX_LENGTH} are allowed",
            hint=f"For example: {clean(name)}",
        )
    if not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", name):
        raise InvalidJob(
            f"job name {name!r}: only letters, digits and, between them, hyphens are allowed",
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
    """``base``, the time to the second (UTC), and four random characters: readable, sortable, unique.

    >>> new_job_name("digits", now=lambda: datetime(2026, 11, 21, 12, 5, 9), token=lambda: "k3f9")
    'digits-20261121-120509-k3f9'
    """
    suffix = f"-{now():%Y%m%d-%H%M%S}-{token()}"
    stem = clean(base)[: MAX_LENGTH - len(suffix)].strip("-") or "job"
    return stem + suffix


def base_name(job: TrainingJob) -> str | None:
    """The beginning of a made name: the one given, or as the SageMaker SDK does, that of the image.

    None where neither is known.
    """
    if job.base_job_name:
        return job.base_job_name
    if job.image_uri and job.image_uri != AUTO_IMAGE:
        repository = job.image_uri.rpartition("/")[2]
        return re.split("[:@]", repository)[0]
    if job.framework == "huggingface":
        return f"huggingface-{'tensorflow' if job.tensorflow_version else 'pytorch'}-training"
    return f"{job.framework}-training" if job.framework else None
