"""Stops and preempts jobs: their pods get SIGTERM and the grace of the job. Requests the stacks of their ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.contract.preemption import NATIVE_STACKS, STACKS
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.kubernetes.api.client import Api
from cloudtrain.platforms.kubernetes.api.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeInvalid,
    KubeNotFound,
)
from cloudtrain.platforms.kubernetes.api.kinds import JOB, WORKLOAD, Kind, kind_of
from cloudtrain.platforms.kubernetes.labels import STOPPED, WORKLOAD_LABEL
from cloudtrain.platforms.kubernetes.life.objects import (
    Object,
    Owner,
    Snapshot,
    annotation,
    format_time,
    items,
    name_of,
    number,
    part,
    suspension,
    text,
    uid_of,
)
from cloudtrain.platforms.kubernetes.life.pods import Pod

SOONEST = 1
"""The shortest time limit that Kubernetes accepts, in seconds."""
INSIST_SECONDS = 20.0
"""How long pods of a stopped job may run until it is suspended: its operator may have created new ones meanwhile."""
TOO_MANY_REQUESTS = 429

_DEADLINE: Mapping[str, Any] = {"activeDeadlineSeconds": SOONEST}


def stop_patch(owner: Object, note: Mapping[str, str], *, suspend: bool) -> dict[str, Any]:
    """The patch that ends a main object. Kubernetes rejects it for another object of the same name.

    A Job gets a time limit that it has already exceeded, so that it finishes, and its TTL begins. With ``suspend``, the
    object is suspended instead. ``note`` are annotations to add.
    """
    found = Owner(owner)
    patch: dict[str, Any] = {"metadata": {"uid": uid_of(owner), "annotations": dict(note)}}
    if suspend:
        patch["spec"] = suspension(found.kind, True)
    elif found.kind == "Job":
        patch["spec"] = dict(_DEADLINE)
    return patch


def child_jobs(owner: Object) -> list[str]:
    """The names of the Jobs whose failure, at their time limit, ends a JobSet.

    The Job of an MPIJob is not among them: the MPIJob's workers would restart in their pods until its operator removes
    them.
    """
    found = Owner(owner)
    if found.kind != "JobSet":
        return []
    return [
        f"{found.name}-{text(job, 'name')}-{index}"
        for job in items(owner, "spec", "replicatedJobs")
        for index in range(number(job, "replicas") or 1)
    ]


def stop(api: Api, kind: Kind, objects: Snapshot, *, now: float | None = None) -> None:
    """Stop a job, unless it has ended. A job that was never released is deleted. May be repeated.

    Raises PlatformError if the cluster refuses it.
    """
    owner = objects.owner
    if owner is None or Owner(owner).complete or Owner(owner).failed:
        return
    if Owner(owner).is_unreleased:
        with contextlib.suppress(KubeNotFound):
            api.delete(kind, name_of(owner), uid=uid_of(owner))
        return
    now = api.now() if now is None else now
    stopped_before = annotation(owner, STOPPED)
    end(api, kind, owner, objects.workload, {STOPPED: stopped_before or format_time(now)})


def insist(api: Api, kind: Kind, objects: Snapshot, pods: Sequence[Pod], now: float) -> None:
    """Suspend a stopped job that still has active pods. Raises PlatformError."""
    owner = Owner(objects.owner or {})
    since = owner.stopped_at
    remain = any(not pod.is_over and not pod.is_deleted for pod in pods)
    if since is not None and now - since > INSIST_SECONDS and remain and not owner.is_suspended:
        _suspend(api, kind, owner.found, objects.workload, {})


def end(api: Api, kind: Kind, owner: Object, workload: Object | None, note: Mapping[str, str]) -> None:
    """End a job's pods, and record the reason in its annotations.

    Raises PlatformError if the cluster refuses it.
    """
    found = Owner(owner)
    jobs = []
    for name in [] if found.is_suspended else child_jobs(owner):
        with contextlib.suppress(KubeNotFound):
            job = api.get(JOB, name)
            if uid_of(owner) in (one.get("uid") for one in items(job, "metadata", "ownerReferences")):
                jobs.append(job)
    if found.is_suspended or not (jobs or found.kind == "Job"):
        _suspend(api, kind, owner, workload, note)
        return
    _patch(api, kind, owner, stop_patch(owner, note, suspend=False))
    for job in jobs:
        patch = {"metadata": {"uid": uid_of(job)}, "spec": dict(_DEADLINE)}
        with contextlib.suppress(KubeNotFound, KubeConflict):  # its operator has replaced the Job
            api.patch(JOB, name_of(job), patch)


def _suspend(api: Api, kind: Kind, owner: Object, workload: Object | None, note: Mapping[str, str]) -> None:
    if workload is not None:
        _deactivate(api, workload)  # else Kueue would restart it
    found = _patch(api, kind, owner, stop_patch(owner, note, suspend=True))
    if found is None or workload is not None or not Owner(owner).queue:
        return
    if served := api.served(WORKLOAD):  # Kueue may just have created one
        for made in api.list(served, labels=f"{WORKLOAD_LABEL}={uid_of(found)}")[0]:
            _deactivate(api, made)


def _patch(api: Api, kind: Kind, owner: Object, patch: Mapping[str, Any]) -> Object | None:
    """The patched main object; None if it was deleted meanwhile."""
    name = name_of(owner)
    try:
        return api.patch(kind, name, patch)
    except KubeNotFound:
        return None
    except (KubeConflict, KubeInvalid) as error:
        if "uid" not in error.message.lower():
            raise
        raise replaced(name) from error


def replaced(name: str) -> PlatformError:
    """The error for a job that another one of the same name has replaced."""
    return PlatformError(
        f"job {name} was replaced by another one of the same name, which is left alone",
        hint=f"See that one with: cloudtrain describe {name}. To end it, delete it with kubectl.",
    )


def _deactivate(api: Api, workload: Object) -> None:
    """Prevent Kueue from restarting a job. Raises PlatformError."""
    if part(workload, "spec", "active") is not False:
        with contextlib.suppress(KubeNotFound):
            patch = {"metadata": {"uid": uid_of(workload)}, "spec": {"active": False}}
            api.patch(kind_of(workload), name_of(workload), patch)


def preempt(api: Api, name: str, pods: Sequence[Pod]) -> None:
    """Evict the current pods of a job, as the maintenance of nodes does. The job's controller restarts them.

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


def request_stacks(api: Api, name: str, pods: Sequence[Pod], *, native: bool) -> None:
    """Signal the runtime of the leader, which is the first process of its container.

    Raises:
        PlatformError: it does not run, or the user may not run commands in its pod.
    """
    leader = next((pod for pod in pods if pod.is_leader and pod.is_running and not pod.is_deleted), None)
    if leader is None:
        raise PlatformError(
            f"the leader of job {name} does not run", hint=f"See why: cloudtrain describe {name}"
        )
    signal = (NATIVE_STACKS if native else STACKS).removeprefix("SIG")
    try:
        api.execute(leader.name, leader.container, ["/bin/sh", "-c", f"kill -s {signal} 1"])
    except KubeForbidden as error:
        error.hint = "Your role needs the verbs get and create on pods/exec."
        raise
