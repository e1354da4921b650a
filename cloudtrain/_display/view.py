"""A job at one moment: all that is shown of it, as data."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from cloudtrain._dataclass import dataclass
from cloudtrain._display.waits import data_shares, mean_share
from cloudtrain.contract import JobStatus
from cloudtrain.errors import CloudtrainError, PlatformError
from cloudtrain.platforms import (
    JobDescription,
    JobState,
    Metrics,
    Platform,
    Series,
    States,
    Summaries,
)
from cloudtrain.platforms.base import cost_so_far

if TYPE_CHECKING:
    from cloudtrain.cost.so_far import Cost
    from cloudtrain.history.predictions import Prediction
    from cloudtrain.observe import Sample, Summary
    from cloudtrain.observe.course import Attempt, Span
    from cloudtrain.observe.hanging import Hanging
    from cloudtrain.observe.stacks import StackDump


@dataclass(frozen=True)
class Rank:
    """A rank in the last attempt of a job."""

    number: int
    host: str
    state: str
    """The phase of its host; ``ended`` or ``failed`` after its own end."""
    exit_code: int | None = None
    step: int | None = None
    """The last step that a rank of its host reported."""
    data_wait: float | None = None
    """The share of its time that it waits for data, from 0 to 1: see `JobView.data_shares`."""


@dataclass(frozen=True)
class JobView:
    """A job at one moment. Fields that are unknown, or not available on its platform, are empty or None."""

    description: JobDescription
    at: float
    """The moment, in seconds since the epoch."""
    series: Series = field(default_factory=dict)
    """The course of each metric, as far as it is available."""
    states: Sequence[JobState] = ()
    """The states so far, as the platform names them."""
    cost: Cost | None = None
    """So far, over all attempts; None if the price is not known."""
    stacks: StackDump | None = None
    """The stacks of the ranks that were taken last: see `cloudtrain.platforms.Stacks`."""
    summary: Summary | None = None
    """The summary of the job's events, where the platform has them."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """The samples of each host of the last attempt in the last hour, oldest first, as far as available."""
    exposed: float | None = None
    """The share of the last steps that ranks have waited for communication, from 0 to 1, if they record a timeline."""
    plan: Prediction | None = None
    """The time and cost that were planned for the job, and the error of the plan."""

    @property
    def seconds(self) -> float | None:
        """From the start of the job to its end, or to this moment; None if it has not started."""
        return duration(self.description, self.at)

    @property
    def now(self) -> float:
        """This moment on the job's clock, which `attempts` and `spans` use."""
        return self.description.ended_at or self.description.looked_at or self.at

    @property
    def waits(self) -> str:
        """Why the job waits, in the terms of its platform; empty if it does not."""
        if self.description.status != JobStatus.PENDING:
            return ""
        last = self.states[-1] if self.states else None
        hosts = (host.message for host in self.description.hosts if host.message)
        return self.description.reason or (last.message or last.name if last else next(hosts, ""))

    @property
    def hanging(self) -> Hanging | None:
        """The current hang, if one was found; None if the job has ended."""
        return self.summary.hanging if self.summary and not self.description.status.is_final else None

    @property
    def hangs(self) -> str:
        """Which rank hangs, where, and since when; empty if none does."""
        found = self.hanging
        return f"{found} (since {moment(found.since)})" if found else ""

    @property
    def attempts(self) -> Sequence[Attempt]:
        """The attempts so far, in order."""
        return self.summary.course.attempts if self.summary else ()

    @property
    def spans(self) -> Sequence[Span]:
        """The phases of all attempts on a time axis, in the order of their starts."""
        return self.summary.course.spans if self.summary else ()

    @property
    def data_shares(self) -> dict[int, float]:
        """The share of the time that each rank waits for data, where it is known: see `waits.data_shares`."""
        return data_shares(self.samples, is_running=not self.description.status.is_final)

    @property
    def ranks(self) -> list[Rank]:
        """The ranks of the last attempt, by number: those of hosts that have reported them."""
        if self.summary is None:
            return []
        states = {host.name: host.state for host in self.description.hosts}
        waits = self.data_shares
        found = []
        for name, host in self.summary.course.hosts.items():
            codes = dict(host.ended)
            for number in host.ranks:
                code = codes.get(number)
                state = states.get(name, "") if code is None else "failed" if code else "ended"
                found.append(Rank(number, name, state, code, host.step, waits.get(number)))
        return sorted(found, key=lambda rank: rank.number)

    def to_dict(self) -> dict[str, Any]:
        """The view as data for JSON. Times are in seconds since the epoch; points are time, value and step."""
        return {
            **self.description.to_dict(),
            "at": self.at,
            "waits": self.waits,
            "hanging": self.hanging.to_dict() if self.hanging else None,
            "states": [asdict(state) for state in self.states],
            "attempts": [asdict(attempt) for attempt in self.attempts],
            "spans": [asdict(span) for span in self.spans],
            "ranks": [asdict(rank) for rank in self.ranks],
            "series": {name: [[*point[:3]] for point in points] for name, points in self.series.items()},
            "recent_samples": {
                host: [sample.to_dict() for sample in samples] for host, samples in self.samples.items()
            },
            "exposed": self.exposed,
            "data_wait": mean_share(self.data_shares),
            **cost_fields(self.cost),
            "plan": self.plan.to_dict() if self.plan else None,
            "stacks": self.stacks.to_dict() if self.stacks else None,
        }


def look_at(
    platform: Platform,
    job_name: str,
    description: JobDescription | None = None,
    *,
    states: bool = True,
) -> JobView:
    """Query the platform for all that is shown of a job. Raises PlatformError.

    It is cheap even for a job with millions of events if the platform has `Summaries`. The end of a job that has ended
    is recorded in the history.

    Args:
        description: a description of the job as it is now.
        states: false where they are not shown.
    """
    description = description or platform.describe(job_name)
    if description.status.is_final:
        from cloudtrain.history.refresh import freeze

        with contextlib.suppress(CloudtrainError):  # the view does not need the state folder
            freeze(platform, description)
    summary = summary_of(platform, job_name)
    cost = cost_so_far(platform, description)
    series: Series = summary.series if summary else {}
    if description.metrics.keys() - series.keys():  # on SageMaker, some are only in CloudWatch
        series = {**series_of(platform, job_name), **series}
    return JobView(
        description,
        time.time(),
        series,
        states_of(platform, job_name) if states else (),
        cost,
        summary.stacks.last if summary else None,
        summary,
        summary.recent_samples() if summary else {},
        exposed_of(description),
        plan_of(description, cost),
    )


def plan_of(description: JobDescription, cost: Cost | None = None) -> Prediction | None:
    """See `JobView.plan`."""
    from cloudtrain.history.predictions import prediction

    return prediction(description, *((cost.amount, cost.currency) if cost else ()))


def exposed_of(description: JobDescription) -> float | None:
    """See `JobView.exposed`; None for a job whose folder is not on this machine."""
    if "://" in description.place or not os.path.isabs(description.place):
        return None
    from cloudtrain.observe.timeline.recent import exposed_share

    return exposed_share(description.place)


def summary_of(platform: Platform, job_name: str) -> Summary | None:
    """The summary of the job's events; None if the platform has none, or does not answer."""
    if isinstance(platform, Summaries):
        with contextlib.suppress(PlatformError):
            return platform.summary(job_name)
    return None


def series_of(platform: Platform, job_name: str) -> Series:
    """The metrics over time; empty if the platform denies access to them. A view is useful without them."""
    if isinstance(platform, Metrics):
        with contextlib.suppress(PlatformError):
            return platform.metrics(job_name)
    return {}


def states_of(platform: Platform, job_name: str) -> Sequence[JobState]:
    """The states of the job; none if the platform does not report them, or does not answer."""
    if isinstance(platform, States):
        with contextlib.suppress(PlatformError):
            return platform.states(job_name)
    return ()


def cost_fields(cost: Cost | None) -> dict[str, Any]:
    """The cost as data for JSON: null if it is unknown, never 0."""
    price = {"source": cost.source, "date": cost.date} if cost and cost.source else None
    return {
        "cost": cost and cost.amount,
        "currency": cost and cost.currency,
        "price": price,
        "cap": (cost and cost.cap) or None,
    }


def duration(description: JobDescription, now: float) -> float | None:
    """Seconds from the start of a job to its end, or to ``now``; None if it has not started."""
    if description.started_at is None:
        return None
    return max((description.ended_at or description.looked_at or now) - description.started_at, 0.0)


def moment(at: float) -> str:
    """Local time, with its date: a notebook or a report may be read later. Empty for an impossible time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):  # of a damaged record
        return ""
