"""All facts that a report contains about one job, as data."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloudtrain._display.view import JobView, look_at
from cloudtrain.contract import decode_hyperparameters
from cloudtrain.contract.environment import NOTHING_HIDDEN, without_secrets
from cloudtrain.contract.text import one_line
from cloudtrain.errors import CloudtrainError, JobNotFound, PlatformError
from cloudtrain.history import PastJob, query
from cloudtrain.index import find_job
from cloudtrain.job import unknown_job
from cloudtrain.platforms import JobDescription, Metrics, Platform, Request, Requests, get_platform

_NAME = re.compile(r"[\w.-]+")
"""Names that can be quoted in a query."""
HYPERPARAMETERS = ("hyperparameters", "HyperParameters")
"""The fields of requests that contain hyperparameters, whose values are JSON."""


@dataclass(frozen=True)
class Gathered:
    """The facts about one job at one moment."""

    name: str
    platform: str
    at: float
    """The moment, in seconds since the epoch."""
    submitted_at: float | None = None
    view: JobView | None = None
    """None if the platform does not answer."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The body of the request, without secrets and with decoded hyperparameters; empty if it is not known."""
    past: PastJob | None = None
    """The job in the history, if its platform does not have everything about it."""
    gaps: Sequence[str] = ()
    """A sentence about each missing fact, with the reason."""

    @property
    def description(self) -> JobDescription | None:
        return self.view.description if self.view else None


def gather(name: str, place: str | None = None) -> Gathered:
    """Collect all facts about a job. If its platform does not have it or does not answer, use the history.

    Args:
        name: the name of the job.
        place: the name of its platform, for a job that was submitted from another machine.

    Raises:
        JobNotFound: there is no such job, not even in the history, or its platform is not known.
        PlatformError: the platform does not answer, and the job was submitted from another machine.
    """
    entry = find_job(name)
    if place is None and entry is None:
        if past := _past(name):
            gap = "The job is not on this machine, or was removed. This is what the history has of it."
            return Gathered(name, past.platform, time.time(), past.submitted_at, past=past, gaps=[gap])
        raise unknown_job(name)
    if entry is None or place not in (None, entry.platform):
        return gather_from(name, get_platform(place or ""))
    try:
        return gather_from(name, get_platform(entry.platform))
    except CloudtrainError as error:
        why = "no longer has the job" if isinstance(error, JobNotFound) else "does not answer"
        gap = f"The platform {entry.platform} {why}. This is all that is known of it here: {one_line(error)}"
        past = _past(name, entry.platform)
        return Gathered(name, entry.platform, time.time(), entry.submitted_at, past=past, gaps=[gap])


def _past(name: str, platform: str = "") -> PastJob | None:
    """The newest job of this name in the history; None if there is none, or the history cannot be used."""
    if not _NAME.fullmatch(name):
        return None
    with contextlib.suppress(CloudtrainError):
        where = f"name == '{name}'" + (f" and platform == '{platform}'" if platform else "")
        for found in query(where, limit=1, up_to_date=False):
            return found
    return None


def gather_from(name: str, platform: Platform) -> Gathered:
    """Collect everything that the platform has about the job. Raises JobNotFound, PlatformError."""
    view, gaps, request, past = look_at(platform, name), [], {}, None
    try:
        if view.summary is not None and view.description.metrics and isinstance(platform, Metrics):
            view = replace(view, series=platform.metrics(name))  # all values, not only their course
    except PlatformError as error:
        gaps.append(f"The metrics are not complete: {one_line(error)}")
    try:
        request = _request(platform, name)
        past = None if request else _past(name, platform.name)
        if not request and past is None:
            gaps.append(
                f"The platform {platform.name} does not keep the requests of its jobs: see the job file."
            )
    except PlatformError as error:
        gaps.append(f"The request of the job is not known: {one_line(error)}")
    return Gathered(name, platform.name, view.at, view.description.submitted_at, view, request, past, gaps)


def _request(platform: Platform, name: str) -> dict[str, Any]:
    return shown_request(platform.request(name)) if isinstance(platform, Requests) else {}


def shown_request(request: Request) -> dict[str, Any]:
    """The body of a request, with decoded hyperparameters and ``***`` for every likely secret."""
    body = json.loads(json.dumps(request.body, default=str))
    for key in HYPERPARAMETERS:
        if isinstance(body.get(key), dict):
            body[key] = decode_hyperparameters(body[key])
    return without_secrets(body, NOTHING_HIDDEN)
