"""The main object of a job, in its four kinds: Indexed Job, JobSet, TrainJob, MPIJob.

Conditions: https://kubernetes.io/docs/concepts/workloads/controllers/job/ (1.29 to 1.37), JobSet 0.12, Trainer 2.3,
MPI Operator 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloudtrain.platforms.kubernetes.labels import QUEUE, STOPPED, UNRELEASED
from cloudtrain.platforms.kubernetes.life.objects import (
    Object,
    annotation,
    condition,
    holds,
    items,
    label,
    name_of,
    number,
    parse_time,
    part,
    text,
    when,
)

DEADLINE = "DeadlineExceeded"
TIME_LIMITS = {DEADLINE, "MaximumExecutionTimeExceeded"}

_DONE = ("Complete", "Completed", "Succeeded")
"""The condition of a job that has succeeded, in each kind."""


@dataclass(frozen=True)
class Owner:
    """The main object of a job."""

    found: Object

    @property
    def name(self) -> str:
        return name_of(self.found)

    @property
    def kind(self) -> str:
        """``Job``, ``JobSet``, ``TrainJob`` or ``MPIJob``."""
        return text(self.found, "kind") or "Job"

    @property
    def created(self) -> float:
        return when(self.found, "metadata", "creationTimestamp") or 0.0

    @property
    def is_deleted(self) -> bool:
        return bool(text(self.found, "metadata", "deletionTimestamp"))

    @property
    def queue(self) -> str:
        """The queue of Kueue; empty if Kueue does not manage the job."""
        return label(self.found, QUEUE)

    @property
    def stopped_at(self) -> float | None:
        """When a user has stopped it; None if no one has."""
        said = annotation(self.found, STOPPED)
        return parse_time(said) or self.created if said else None

    @property
    def complete(self) -> Object | None:
        """The condition that says that it has succeeded."""
        return next((found for kind in _DONE if (found := holds(self.found, kind))), None)

    @property
    def failed(self) -> Object | None:
        """The condition that says that it has failed; of a Job, also once it is about to."""
        return holds(self.found, "Failed") or holds(self.found, "FailureTarget")

    @property
    def is_failing(self) -> bool:
        """Whether it has failed, but its pods have not ended yet."""
        return not holds(self.found, "Failed") and bool(holds(self.found, "FailureTarget"))

    @property
    def reached_deadline(self) -> bool:
        return text(self.failed, "reason") in TIME_LIMITS

    @property
    def deadline(self) -> int:
        """Seconds that the job may take; 0 if it has no limit."""
        run = part(self.found, "spec", "runPolicy") if self.kind == "MPIJob" else part(self.found, "spec")
        return number(run, "activeDeadlineSeconds")

    @property
    def is_suspended(self) -> bool:
        path = ("spec", "runPolicy", "suspend") if self.kind == "MPIJob" else ("spec", "suspend")
        return part(self.found, *path) is True

    @property
    def is_unreleased(self) -> bool:
        """Whether its submission has not finished: it waits for objects that it owns."""
        return self.is_suspended and bool(annotation(self.found, UNRELEASED))

    @property
    def started(self) -> float | None:
        """When its controller started it, for the last time."""
        return when(self.found, "status", "startTime")

    @property
    def ended(self) -> float | None:
        """When it ended; None while it lives."""
        over = self.complete or self.failed
        if over is None:
            return None
        done = when(self.found, "status", "completionTime")
        return done if done is not None else when(over, "lastTransitionTime")

    @property
    def hosts(self) -> int:
        """The number of pods that it needs."""
        spec = part(self.found, "spec")
        if self.kind == "JobSet":
            return sum(_replicas(one) for one in items(spec, "replicatedJobs"))
        if self.kind == "TrainJob":
            return number(spec, "trainer", "numNodes") or 1
        if self.kind == "MPIJob":
            kinds: Mapping[str, Object] = part(spec, "mpiReplicaSpecs")
            return sum(number(one, "replicas") or 1 for one in kinds.values())
        return number(spec, "completions") or number(spec, "parallelism") or 1

    def restarts(self) -> int:
        """How often its controller says that it started the pods again; the pods may show more."""
        if self.kind in ("JobSet", "TrainJob"):
            return number(self.found, "status", "restarts")
        if self.kind == "MPIJob" or self.stopped_at is not None or self.reached_deadline:
            return 0
        failed = number(self.found, "status", "failed")
        return max(0, min(failed, number(self.found, "spec", "backoffLimit")))

    @property
    def suspended_since(self) -> float | None:
        return when(condition(self.found, "Suspended"), "lastTransitionTime")


def _replicas(job: Object) -> int:
    spec = part(job, "template", "spec")
    return (number(job, "replicas") or 1) * (number(spec, "completions") or number(spec, "parallelism") or 1)
