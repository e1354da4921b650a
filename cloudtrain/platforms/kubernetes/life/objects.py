"""Reads Kubernetes objects, which are dicts as in the API's JSON. A missing field is empty, never an error.

`Owner` is the main object of a job, in its four kinds. Conditions:
https://kubernetes.io/docs/concepts/workloads/controllers/job/ (1.29 to 1.37), JobSet 0.12, Trainer 2.3,
MPI Operator 0.8.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from cloudtrain.contract.documents import LAST_TIME
from cloudtrain.platforms.kubernetes.labels import QUEUE, STOPPED, UNRELEASED

Object = Mapping[str, Any]

_LAST_TIME = LAST_TIME - 86_400
_TIME_LIMITS = {"DeadlineExceeded", "MaximumExecutionTimeExceeded"}
_DONE = ("Complete", "Completed", "Succeeded")
"""The conditions of the kinds of main objects for a job that has succeeded."""


@dataclass(frozen=True)
class Snapshot:
    """A job's objects at one moment. They are shared with the watch, and must not be modified."""

    owner: dict[str, Any] | None
    """The job's main object; None if it has been deleted."""
    pods: tuple[dict[str, Any], ...] = ()
    """In the order in which they were created."""
    events: tuple[dict[str, Any], ...] = ()
    """Events about the owner, its pods and its Workload, oldest first."""
    gone: tuple[dict[str, Any], ...] = ()
    """The last state of pods that were deleted while they were watched: an evicted or stopped pod is deleted as soon as
    it has ended."""
    workload: dict[str, Any] | None = None
    """Kueue's Workload of the job, if it has a queue."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """By plural: why these objects are missing, for example because the credentials may not list ``events``."""
    problem: str = ""
    """Why this may be out of date, for example because the server does not respond."""
    deleted: dict[str, Any] | None = None
    """The last state of the main object, if it was deleted while it was watched."""


def part(found: Object | None, *path: str) -> Any:
    """The value at ``path``; an empty dict if there is none, or it is null."""
    value: Any = found
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return {} if value is None else value


def text(found: Object | None, *path: str) -> str:
    """The string at ``path``; empty if there is none."""
    value = part(found, *path)
    return value if isinstance(value, str) else ""


def number(found: Object | None, *path: str) -> int:
    """The integer at ``path``; 0 if there is none."""
    value = part(found, *path)
    return value if isinstance(value, int) else 0


def items(found: Object | None, *path: str) -> list[Object]:
    """The objects in the list at ``path``."""
    value = part(found, *path)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def name_of(found: Object) -> str:
    return text(found, "metadata", "name")


def uid_of(found: Object | None) -> str:
    return text(found, "metadata", "uid")


def is_of(owner: Object | None, pod: Object) -> bool:
    """Whether a controller created a pod for this main object or its child Job. Labels do not prove that."""
    made_for = [(text(one, "uid"), text(one, "name")) for one in items(pod, "metadata", "ownerReferences")]
    return owner is None or any(
        uid == uid_of(owner) or name.startswith(f"{name_of(owner)}-") for uid, name in made_for
    )


def annotation(found: Object, name: str) -> str:
    return text(found, "metadata", "annotations", name)


def label(found: Object, name: str) -> str:
    return text(found, "metadata", "labels", name)


def condition(found: Object | None, kind: str) -> Object | None:
    """The condition ``kind`` in the status of an object; None if it has none."""
    return next((one for one in items(found, "status", "conditions") if one.get("type") == kind), None)


def holds(found: Object | None, kind: str) -> Object | None:
    """The condition ``kind`` if its status is True."""
    one = condition(found, kind)
    return one if one is not None and one.get("status") == "True" else None


def when(found: Object | None, *path: str) -> float | None:
    """The time at ``path`` in seconds since the epoch; None if there is none."""
    return parse_time(text(found, *path))


def parse_time(value: str) -> float | None:
    """``2026-11-23T02:47:12Z``, or with microseconds, in seconds since the epoch.

    None for a time that does not exist in every time zone: users may write anything in annotations.
    """
    with contextlib.suppress(ValueError):
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
        return seconds if 0 <= seconds < _LAST_TIME else None
    return None


def format_time(seconds: float) -> str:
    """The inverse of `parse_time`, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def suspension(kind: str, suspend: bool) -> dict[str, Any]:
    """The ``spec`` of a patch that suspends a main object of this kind, or lets it run."""
    field = {"suspend": suspend}
    return {"runPolicy": field} if kind == "MPIJob" else field


def _first_time(event: Object, *paths: tuple[str, ...]) -> float:
    return next((found for path in paths if (found := when(event, *path)) is not None), 0.0)


def event_time(event: Object) -> float:
    """When an event last occurred; 0 if it has no time."""
    last = ("series", "lastObservedTime"), ("lastTimestamp",), ("eventTime",), ("firstTimestamp",)
    return _first_time(event, *last, ("metadata", "creationTimestamp"))


def first_event_time(event: Object) -> float:
    """When an event first occurred; 0 if it has no time."""
    return _first_time(event, ("firstTimestamp",), ("eventTime",)) or event_time(event)


class EventIndex:
    """Events by the object that they are about. They are given in chronological order."""

    def __init__(self, events: Iterable[Object]) -> None:
        self._by_uid: dict[str, list[Object]] = {}
        self._by_name: dict[str, list[Object]] = {}
        for event in events:
            about = part(event, "involvedObject")
            uid, name = text(about, "uid"), text(about, "name")
            # a tool that reports events may omit the uid
            (self._by_uid.setdefault(uid, []) if uid else self._by_name.setdefault(name, [])).append(event)

    def about(self, found: Object) -> list[Object]:
        """The events about one object, in chronological order."""
        return [*self._by_uid.get(uid_of(found), ()), *self._by_name.get(name_of(found), ())]


@dataclass(frozen=True)
class Owner:
    """The main object of a job: an Indexed Job, a JobSet, a TrainJob or an MPIJob."""

    found: Object

    @property
    def name(self) -> str:
        return name_of(self.found)

    @property
    def kind(self) -> str:
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
        """When a user stopped it; None if no user has."""
        reported = annotation(self.found, STOPPED)
        return parse_time(reported) or self.created if reported else None

    @property
    def complete(self) -> Object | None:
        """The condition of its success, if it holds."""
        return next((found for kind in _DONE if (found := holds(self.found, kind))), None)

    @property
    def failed(self) -> Object | None:
        """The condition of its failure, if it holds. A Job has one before its pods have ended."""
        return holds(self.found, "Failed") or holds(self.found, "FailureTarget")

    @property
    def is_failing(self) -> bool:
        """Whether it has failed, but its pods may not have ended yet."""
        return not holds(self.found, "Failed") and bool(holds(self.found, "FailureTarget"))

    @property
    def reached_deadline(self) -> bool:
        return text(self.failed, "reason") in _TIME_LIMITS

    @property
    def _policy(self) -> Object:
        path = ("spec", "runPolicy") if self.kind == "MPIJob" else ("spec",)
        found: Object = part(self.found, *path)
        return found

    @property
    def deadline(self) -> int:
        """The time limit of the job in seconds; 0 if it has none."""
        return number(self._policy, "activeDeadlineSeconds")

    @property
    def is_suspended(self) -> bool:
        return part(self._policy, "suspend") is True

    @property
    def is_unreleased(self) -> bool:
        """Whether its submission has not finished: it waits for objects that it owns."""
        return self.is_suspended and bool(annotation(self.found, UNRELEASED))

    @property
    def started(self) -> float | None:
        """When its controller last started it."""
        return when(self.found, "status", "startTime")

    @property
    def ended(self) -> float | None:
        over = self.complete or self.failed
        if over is None:
            return None
        done = when(self.found, "status", "completionTime")
        return done if done is not None else when(over, "lastTransitionTime")

    @property
    def hosts(self) -> int:
        """The number of pods that it needs."""
        return sum(pods.count for pods in pod_sets(self.found))

    def restarts(self) -> int:
        """The number of restarts that its controller reports. The pods may show more."""
        if self.kind in ("JobSet", "TrainJob"):
            return number(self.found, "status", "restarts")
        if self.kind == "MPIJob" or self.stopped_at is not None or self.reached_deadline:
            return 0
        failed = number(self.found, "status", "failed")
        return max(0, min(failed, number(self.found, "spec", "backoffLimit")))

    @property
    def suspended_since(self) -> float | None:
        return when(condition(self.found, "Suspended"), "lastTransitionTime")


@dataclass(frozen=True)
class PodSet:
    """Pods of one template."""

    count: int
    template: Object

    @property
    def spec(self) -> Object:
        found: Object = part(self.template, "spec")
        return found

    @property
    def containers(self) -> list[Object]:
        return items(self.spec, "containers")


def pod_sets(main: Object) -> Iterator[PodSet]:
    """The pods of a main object of any kind. Pods that lead, if they have their own template, come first."""
    spec, kind = part(main, "spec"), text(main, "kind")
    if kind == "JobSet":
        for one in items(spec, "replicatedJobs"):
            job = part(one, "template", "spec")
            yield PodSet((number(one, "replicas") or 1) * _completions(job), part(job, "template"))
    elif kind == "MPIJob":
        for name in ("Launcher", "Worker"):
            if replicas := part(spec, "mpiReplicaSpecs", name):
                yield PodSet(number(replicas, "replicas") or 1, part(replicas, "template"))
    elif kind == "TrainJob":  # from the fields of the trainer, and our patch of its runtime
        patch = next(iter(items(spec, "runtimePatches")), {})
        jobs = items(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        template = part(next(iter(jobs), {}), "template", "spec", "template")
        trainer = part(spec, "trainer")
        container = {
            **next(iter(items(template, "spec", "containers")), {}),
            "image": part(trainer, "image"),
            "env": items(trainer, "env"),
            "resources": part(trainer, "resourcesPerNode"),
        }
        pod = {**template, "spec": {**part(template, "spec"), "containers": [container]}}
        yield PodSet(number(trainer, "numNodes") or 1, pod)
    else:
        yield PodSet(_completions(spec), part(spec, "template"))


def _completions(spec: Object) -> int:
    return number(spec, "completions") or number(spec, "parallelism") or 1
