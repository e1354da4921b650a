"""One job of the history, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, NamedTuple

from cloudtrain._dataclass import dataclass


class MetricRange(NamedTuple):
    """A metric over a whole job, whose values are means over the ranks that logged a step. None if not finite."""

    last: float | None
    min: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class PastJob:
    """A job as it was at ``seen_at``, which may be after its end. Times are in seconds since the epoch."""

    name: str
    platform: str
    status: str
    """One of `JobStatus`; ``Unknown`` if the platform did not answer, for the given ``reason``."""
    submitted_at: float
    owner: str = ""
    """The user who submitted the job, or first looked at it: ``user@machine``."""
    started_at: float | None = None
    ended_at: float | None = None
    attempt: int | None = None
    """The number of retries."""
    exit_code: int | None = None
    reason: str = ""
    """The reason why it ended early without failing."""
    failure: str = ""
    """The failure class, such as ``out-of-memory``; empty if it did not fail."""
    why: str = ""
    """The reason why it failed or ended early, in one line."""
    git_commit: str | None = None
    script: str | None = None
    instance_type: str | None = None
    instance_count: int | None = None
    cost: float | None = None
    """The cost of all attempts, in ``currency``. None if it is not known."""
    currency: str | None = None
    """The currency of its price. None if the cost is not known, or is from a release that kept no currency."""
    plan_error: float | None = None
    """The relative error of the time that its plan expected, positive if the job took less. None if there is no plan,
    or if the job is not complete."""
    plan_cost_error: float | None = None
    """The relative error of the cost that its plan expected."""
    seen_at: float | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The hyperparameters, and the options among the arguments of the script, as text; secrets are ``***``."""
    metrics: Mapping[str, MetricRange] = field(default_factory=dict)

    @property
    def duration(self) -> float | None:
        """The seconds from its start to its end, or to the last look; None if it has not started."""
        end = self.ended_at or self.seen_at
        return None if self.started_at is None or end is None else max(end - self.started_at, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        metrics = {name: values._asdict() for name, values in self.metrics.items()}
        return {**asdict(self), "duration": self.duration, "metrics": metrics}
