"""The names of a job's objects and hosts, which are labels of DNS."""

from __future__ import annotations

import re

from cloudtrain.errors import InvalidJob

LONGEST = 63
LONGEST_BASE = 24
"""So much of a generated name can be chosen: a time, random characters, and the suffixes of pods follow."""
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def check_name(name: str, longest_suffix: str = "") -> None:
    """Raises InvalidJob for a job whose name cannot be that of its Service and of its pods.

    Args:
        longest_suffix: what the longest name of a pod adds to the job's name, such as ``-15``.
    """
    most = LONGEST - len(longest_suffix)
    if not _LABEL.fullmatch(name):
        raise InvalidJob(
            f"job_name: {name!r} is not a name for Kubernetes: lower-case letters, digits and hyphens, the first "
            "one a letter",
            hint=f"For example: {nearest_name(name, most)}",
        )
    if len(name) > most:
        raise InvalidJob(
            f"job_name: {name!r} has {len(name)} characters, and Kubernetes allows {most} here",
            hint=f"Its pods are called {name[:8]}...{longest_suffix}, in at most {LONGEST} characters. For example: "
            f"{nearest_name(name, most)}",
        )


def nearest_name(text: str, most: int = LONGEST) -> str:
    """``text`` as a name that `check_name` accepts."""
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned[:1].isalpha():
        cleaned = f"job-{cleaned}"
    return cleaned[:most].strip("-")
