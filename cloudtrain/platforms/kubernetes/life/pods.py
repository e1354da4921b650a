"""The pods of a job. Each is one host."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from cloudtrain.contract.ending import Ending
from cloudtrain.platforms.kubernetes.labels import CONTAINER
from cloudtrain.platforms.kubernetes.life.objects import (
    Object,
    annotation,
    holds,
    items,
    label,
    name_of,
    number,
    part,
    text,
    uid_of,
    when,
)

INDEX = "batch.kubernetes.io/job-completion-index"
_BETWEEN = {"PodInitializing", "ContainerCreating"}
"""The reasons of a container that waits for other containers of its pod, or is being created."""


@dataclass(frozen=True)
class PodEnd:
    """How the container of a pod ended."""

    code: int
    reason: str
    message: str
    started: float | None
    ended: float | None
    ending: Ending | None
    """The ending that the runtime wrote; None if it was killed, or never ran."""


@dataclass(frozen=True)
class Waiting:
    """Why a container waits; all fields are empty if none does."""

    reason: str = ""
    message: str = ""
    container: str = ""
    image: str = ""


@dataclass(frozen=True)
class Pod:
    """One pod of a job."""

    found: Object
    name: str
    host: str
    """The name of the host for the runtime: the host name of the pod."""
    is_leader: bool
    created: float
    is_gone: bool = False
    """Whether its object was deleted."""

    @classmethod
    def of(cls, found: Object, leader: str = "", *, is_gone: bool = False) -> Pod:
        """
        Args:
            leader: the name of the leader; if empty, the pod with index 0 leads.
        """
        host = _host(found)
        is_leader = host == leader if leader else _index(found) == 0
        created = when(found, "metadata", "creationTimestamp") or 0.0
        return cls(found, name_of(found), host, is_leader, created, is_gone)

    @property
    def uid(self) -> str:
        return uid_of(self.found)

    @property
    def node(self) -> str:
        return text(self.found, "spec", "nodeName")

    @property
    def image(self) -> str:
        return text(self._container, "image")

    @property
    def container(self) -> str:
        """The name of the container that runs the job."""
        return text(self._container, "name")

    @property
    def phase(self) -> str:
        """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
        return text(self.found, "status", "phase") or "Pending"

    @property
    def is_deleted(self) -> bool:
        """Whether its deletion has begun. It may still run, within its grace."""
        return bool(text(self.found, "metadata", "deletionTimestamp"))

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def is_running(self) -> bool:
        """Whether the container that runs the job has started, and has not ended."""
        return not self.is_over and bool(part(self.status, "state", "running"))

    @property
    def has_log(self) -> bool:
        """Whether that container has started, currently or before a restart."""
        state, last = part(self.status, "state"), part(self.status, "lastState")
        return "running" in state or "terminated" in state or "terminated" in last

    @property
    def log_has_ended(self) -> bool:
        """Whether its log is complete. A container that is restarted in its pod continues the same log."""
        is_restarted = text(self.found, "spec", "restartPolicy") != "Never"
        return self.is_over or ("terminated" in part(self.status, "state") and not is_restarted)

    @property
    def restarts(self) -> int:
        """How often the kubelet has restarted the container."""
        return number(self.status, "restartCount")

    @cached_property
    def status(self) -> Object:
        """The status of the container that runs the job; empty until the kubelet reports it."""
        statuses = items(self.found, "status", "containerStatuses")
        return next((one for one in statuses if one.get("name") == self.container), {})

    @cached_property
    def end(self) -> PodEnd | None:
        """How its container ended; None if it has not ended, or that is unknown."""
        found = part(self.status, "state", "terminated") or part(self.status, "lastState", "terminated")
        if not found:
            return None
        message, began, ended = text(found, "message"), when(found, "startedAt"), when(found, "finishedAt")
        code, reason = number(found, "exitCode"), text(found, "reason")
        return PodEnd(code, reason, message, began, ended, read_ending(message))

    @property
    def started(self) -> float | None:
        """When its container started."""
        running = when(self.status, "state", "running", "startedAt")
        return running if running is not None else self.end.started if self.end else None

    @property
    def disruption(self) -> Object | None:
        """The condition with the cause of the pod's disruption; None if it was not disrupted."""
        return holds(self.found, "DisruptionTarget")

    @property
    def why_gone(self) -> str:
        """The reason in its status, if the kubelet or the control plane ended the pod: ``Evicted``."""
        return text(self.found, "status", "reason")

    @property
    def waiting(self) -> Waiting:
        """Why a container of the pod waits. A container that waits only for others has the lowest priority."""
        init = items(self.found, "status", "initContainerStatuses")
        found = [
            Waiting(text(state, "reason"), text(state, "message"), text(one, "name"), text(one, "image"))
            for one in [*init, self.status, *items(self.found, "status", "containerStatuses")]
            if (state := part(one, "state", "waiting"))
        ]
        return min(found, key=lambda one: one.reason in _BETWEEN, default=Waiting())

    @cached_property
    def _container(self) -> Object:
        """The container that runs the job. A service mesh may insert its sidecar before it."""
        containers = items(self.found, "spec", "containers")
        ours = (one for one in containers if one.get("name") == CONTAINER)
        return next(ours, containers[0] if containers else {})

    def state(self) -> str:
        """The state of the pod in short form: ``Running``, ``ImagePullBackOff``, ``OOMKilled``."""
        if self.is_over:
            end = self.end
            if self.why_gone:
                return self.why_gone
            if end and end.reason not in ("", "Error", "Completed"):
                return end.reason
            return self.phase if not end or end.code == 0 else f"exited with code {end.code}"
        if self.is_deleted:
            return "Terminating"
        if self.waiting.reason:
            return self.waiting.reason
        return "Running" if self.is_running else self.phase


def _host(found: Object) -> str:
    """The host name of the pod; without one, its name, less the suffix with which the API server made it unique."""
    hostname, generated = text(found, "spec", "hostname"), text(found, "metadata", "generateName")
    return hostname or (generated.rstrip("-") if generated else name_of(found))


def _index(found: Object) -> int | None:
    value = annotation(found, INDEX) or label(found, INDEX)
    return int(value) if value.isdecimal() and len(value) < 10 else None


def read_ending(message: str) -> Ending | None:
    """The ending in a termination message; None if the message is something else, or damaged."""
    with contextlib.suppress(ValueError):
        return Ending.from_json(message)
    return None


def by_host(name: str) -> tuple[object, ...]:
    """A key that sorts ``train-10`` after ``train-9``."""
    pieces = re.split(r"(\d+)", name)
    return tuple((1, int(piece), "") if piece.isdecimal() else (0, 0, piece) for piece in pieces)


def all_pods(found: Iterable[Object], leader: str = "", gone: Iterable[Object] = ()) -> list[Pod]:
    """All pods: first the leader's, then by host, and for each host oldest first. ``gone``: the deleted pods."""
    pods = [Pod.of(one, leader) for one in found]
    pods += [Pod.of(one, leader, is_gone=True) for one in gone]
    return sorted(pods, key=lambda pod: (not pod.is_leader, by_host(pod.host), pod.created, pod.name))


def newest(pods: Iterable[Pod]) -> list[Pod]:
    """The newest pod of each host, even if it was deleted: the pods of the last attempt."""
    return list({pod.host: pod for pod in pods}.values())


def current(pods: Iterable[Pod]) -> list[Pod]:
    """The newest existing pod of each host."""
    return newest(pod for pod in pods if not pod.is_gone)


def leader_of(pods: Iterable[Pod]) -> Pod | None:
    """The newest pod of the leader, even if it was deleted; None if there was none."""
    return next((pod for pod in newest(pods) if pod.is_leader), None)
