"""One job of the history, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, NamedTuple

from cloudtrain._dataclass import dataclass


class MetricRange(NamedTuple):
    """A metric over a whole job: means of the ranks that logged a step. None where a value is not a finite number."""

    last: float | None
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class PastJob:
    """A job as it was at ``seen_at``: if it had ended, as it ended. Times are in seconds since the epoch."""

    name: str
    platform: str
    status: str
    """That of `JobStatus`; ``Unknown`` if the platform did not answer, with the ``reason``."""
    submitted_at: float
    owner: str = ""
    """Who submitted it, or looked at it first: ``user@machine``."""
    started_at: float | None = None
    ended_at: float | None = None
    attempt: int | None = None
    """The number of retries."""
    exit_code: int | None = None
    reason: str = ""
    """Why it ended early, if it did not fail."""
    failure: str = ""
    """The failure class, such as ``out-of-memory``; empty if it did not fail."""
    why: str = ""
    """Why it failed or ended early, in one line."""
    git_commit: str | None = None
    script: str | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    cost: float | None = None
    """Of all attempts, in ``currency``. None if it is not known."""
    currency: str | None = None
    """That of its price. None if the cost is not known, or is from a release that kept no currency."""
    plan_error: float | None = None
    """By how much its plan expected a longer time than it took, as a share of that. None without a plan, and unless it
    is complete."""
    plan_cost_error: float | None = None
    """The same of the cost."""
    seen_at: float | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Hyperparameters, and options in the arguments of the script, as text; ``***`` is the value of a secret."""
    metrics: Mapping[str, MetricRange] = field(default_factory=dict)

    @property
    def duration(self) -> float | None:
        """Seconds from its start to its end, or to the last look; None if it has not started."""
        end = self.ended_at or self.seen_at
        return None if self.started_at is None or end is None else max(end - self.started_at, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        metrics = {name: values._asdict() for name, values in self.metrics.items()}
        return {**asdict(self), "duration": self.duration, "metrics": metrics}
