"""Which containers of a job have logs, as its pods say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cloudtrain.platforms.kubernetes.life.describe import pods_of
from cloudtrain.platforms.kubernetes.life.objects import JobObjects, part, text
from cloudtrain.platforms.kubernetes.logs.pod_log import Source


@dataclass(frozen=True)
class SourceState:
    """One container with a log."""

    source: Source
    is_leader: bool
    began: float
    """When its pod was created, in seconds since the epoch."""
    has_ended: bool


def sources(objects: JobObjects) -> Iterator[SourceState]:
    """The container of each pod that runs the job, once it has started; the leader's first.

    Sidecars that others have added to a pod have their own logs.
    """
    for pod in pods_of(objects):
        state, last = part(pod.status, "state"), part(pod.status, "lastState")
        if not ("running" in state or "terminated" in state or "terminated" in last):
            continue
        # a container that is started again in its pod continues the same log
        restarts = text(pod.found, "spec", "restartPolicy") != "Never"
        has_ended = pod.is_over or ("terminated" in state and not restarts)
        source = Source(pod.name, pod.uid, pod.container, pod.host)
        yield SourceState(source, pod.is_leader, pod.created, has_ended)
