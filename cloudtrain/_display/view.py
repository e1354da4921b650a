"""A job at one moment: all that is shown of it, as data."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import (
    JobDescription,
    JobState,
    Metrics,
    Platform,
    Prices,
    Series,
    States,
    Trends,
)

STATUS_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.STOPPED: "yellow",
    JobStatus.INTERRUPTED: "yellow",
}


@dataclass(frozen=True)
class JobView:
    """A job at one moment."""

    description: JobDescription
    at: float
    """The moment, in seconds since the epoch."""
    series: Series = field(default_factory=dict)
    """The course of each metric, as far as it can be had."""
    states: Sequence[JobState] = ()
    """The states so far, as the platform names them."""
    cost: float | None = None
    """In US dollars."""

    @property
    def seconds(self) -> float | None:
        """From the start of the job to its end, or to this moment; None if it has not started."""
        return duration(self.description, self.at)


def look_at(
    platform: Platform,
    job_name: str,
    description: JobDescription | None = None,
    *,
    states: bool = True,
) -> JobView:
    """Query the platform for all that is shown of a job. Raises PlatformError.

    Args:
        description: a description of the job as it is now.
        states: false where they are not shown.
    """
    description = description or platform.describe(job_name)
    return JobView(
        description,
        time.time(),
        series_of(platform, job_name) if description.metrics else {},
        states_of(platform, job_name) if states else (),
        cost_of(platform, job_name) if description.status.is_final else None,
    )


def series_of(platform: Platform, job_name: str) -> Series:
    """The metrics over time; empty if the platform denies access to them. A view is useful without them."""
    with contextlib.suppress(PlatformError):
        if isinstance(platform, Trends):
            return platform.trends(job_name)
        if isinstance(platform, Metrics):
            return platform.metrics(job_name)
    return {}


def states_of(platform: Platform, job_name: str) -> Sequence[JobState]:
    """The states of the job; none if the platform does not report them, or does not answer."""
    if isinstance(platform, States):
        with contextlib.suppress(PlatformError):
            return platform.states(job_name)
    return ()


def cost_of(platform: Platform, job_name: str) -> float | None:
    if isinstance(platform, Prices):
        with contextlib.suppress(PlatformError):
            return platform.cost(job_name)
    return None


def duration(description: JobDescription, now: float) -> float | None:
    """Seconds from the start of a job to its end, or to ``now``; None if it has not started."""
    if description.started_at is None:
        return None
    return max((description.ended_at or description.looked_at or now) - description.started_at, 0.0)
