"""Results that readers keep next to a job to be faster the next time. A damaged one counts as missing."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from cloudtrain._version import __version__
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.observe import Goodput
from cloudtrain.platforms.base import HostState, JobDescription


def to_cached(values: dict[str, Any]) -> bytes:
    """``values`` for a file, with their hash: whatever changes a byte makes them count as missing."""
    text = json.dumps({"version": __version__, **values}, ensure_ascii=False)
    data = text.encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def from_cached(data: bytes) -> dict[str, Any] | None:
    """The inverse of `to_cached`; None for anything else, and for values of another version."""
    digest, _, content = data.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        return None
    values: dict[str, Any] = json.loads(content)
    return values if values["version"] == __version__ else None


def to_description(values: dict[str, Any]) -> JobDescription:
    """The inverse of `JobDescription.to_dict`, for values that `from_cached` has returned."""
    return JobDescription(
        **{
            **values,
            "status": JobStatus(values["status"]),
            "failure": values["failure"] and FailureReport.from_dict(values["failure"]),
            "hosts": [HostState(**host) for host in values.get("hosts", ())],
            "goodput": values["goodput"] and Goodput(**values["goodput"]),
        }
    )
