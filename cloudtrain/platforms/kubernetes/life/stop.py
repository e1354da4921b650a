"""Stops and preempts jobs. Their pods get SIGTERM and the grace period of the job."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeConflict,
    KubeError,
    KubeInvalid,
    KubeNotFound,
)
from cloudtrain.platforms.kubernetes.api.kinds import WORKLOAD, Kind, kind_of
from cloudtrain.platforms.kubernetes.life.objects import (
    STOPPED,
    JobObjects,
    Object,
    annotation,
    format_time,
    name_of,
    text,
)
from cloudtrain.platforms.kubernetes.life.owner import QUEUE, Owner
from cloudtrain.platforms.kubernetes.life.pods import Pod

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api

SOONEST = 1
"""Seconds: the shortest time limit that Kubernetes accepts."""
TOO_MANY_REQUESTS = 429


def stop_patch(owner: Object, note: Mapping[str, str]) -> dict[str, Any]:
    """The patch that ends a job's pods, and leaves its main object.

    A Job that has started gets a time limit that is over: it is then finished, and its TTL begins. All other objects
    are suspended. Kubernetes refuses the patch if the object is not ``owner`` any more, but another one of its name.

    Args:
        note: annotations to add.
    """
    found = Owner(owner)
    patch: dict[str, Any] = {"metadata": {"uid": text(owner, "metadata", "uid"), "annotations": dict(note)}}
    if found.kind == "Job" and not found.is_suspended:
        patch["spec"] = {"activeDeadlineSeconds": SOONEST}
    elif found.kind == "MPIJob":
        patch["spec"] = {"runPolicy": {"suspend": True}}
    else:
        patch["spec"] = {"suspend": True}
    return patch


def stop(api: Api, kind: Kind, objects: JobObjects, *, now: float | None = None) -> None:
    """Stop a job. Does nothing more if it has ended, or has been stopped.

    Raises PlatformError if the cluster refuses it.
    """
    owner = objects.owner
    if owner is None or Owner(owner).complete or Owner(owner).failed:
        return
    now = time.time() if now is None else now
    stopped_before = annotation(owner, STOPPED)
    end(api, kind, owner, objects.workload, {STOPPED: stopped_before or format_time(now)})


def end(api: Api, kind: Kind, owner: Object, workload: Object | None, note: Mapping[str, str]) -> None:
    """End a job's pods, and note why in its annotations.

    Raises PlatformError if the cluster refuses it.
    """
    name = name_of(owner)
    if workload is not None and (kind.kind != "Job" or Owner(owner).is_suspended):
        _deactivate(api, workload)  # else Kueue would start it again
    patch = stop_patch(owner, note)
    try:
        found = api.patch(kind, name, patch)
    except KubeNotFound:
        return  # it was deleted meanwhile
    except (KubeConflict, KubeInvalid) as error:
        if "uid" not in error.message.lower():
            raise
        raise PlatformError(
            f"job {name} was replaced by another one of the same name, which is left alone",
            hint=f"See that one with: cloudtrain describe {name}",
        ) from error
    if Owner(owner).queue and workload is None and Owner(found).is_suspended:
        _deactivate_of(api, found)


def _deactivate(api: Api, workload: Object) -> None:
    """Keep Kueue from starting a job again. Raises PlatformError."""
    if Owner(workload).found.get("spec", {}).get("active") is False:
        return
    patch = {"metadata": {"uid": text(workload, "metadata", "uid")}, "spec": {"active": False}}
    try:
        kind = kind_of(workload) if workload.get("apiVersion") else WORKLOAD
        api.patch(kind, name_of(workload), patch)
    except KubeNotFound:
        return


def _deactivate_of(api: Api, owner: Object) -> None:
    """The same for a Workload that Kueue has just made."""
    uid = text(owner, "metadata", "uid")
    if not api.has(WORKLOAD) or not text(owner, "metadata", "labels", QUEUE):
        return
    found, _ = api.list(WORKLOAD, labels=f"kueue.x-k8s.io/job-uid={uid}")
    for workload in found:
        _deactivate(api, workload)


def preempt(api: Api, name: str, pods: Sequence[Pod]) -> None:
    """Evict the pods of a job, as the maintenance of a node does. The job's controller starts them again.

    Args:
        pods: the current pods.

    Raises:
        PlatformError: none of them runs, or a PodDisruptionBudget protects them.
    """
    running = [pod for pod in pods if pod.is_running and not pod.is_deleted]
    if not running:
        raise PlatformError(f"job {name} has no running pods", hint=f"See why: cloudtrain describe {name}")
    for pod in reversed(running):  # the leader last: it decides for the others
        try:
            api.evict(pod.name)
        except KubeNotFound:
            continue
        except KubeError as error:
            if error.status != TOO_MANY_REQUESTS:
                raise
            raise PlatformError(
                f"pod {pod.name} may not be evicted: {error.message}",
                hint="A PodDisruptionBudget protects it: kubectl get poddisruptionbudgets",
            ) from error
