"""Why a job waits: the most important reason among its pods, or the reason why it has none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from cloudtrain.platforms.kubernetes.api.refusals import CONFIGURATION_SECONDS, Rule, Why, first_match
from cloudtrain.platforms.kubernetes.labels import JOB, QUEUE
from cloudtrain.platforms.kubernetes.life.objects import (
    EventIndex,
    Object,
    Owner,
    Snapshot,
    condition,
    event_time,
    first_event_time,
    holds,
    items,
    label,
    part,
    suspension,
    text,
    when,
)
from cloudtrain.platforms.kubernetes.life.pods import Pod, Waiting
from cloudtrain.platforms.kubernetes.life.reasons import (
    CREATE_ERRORS,
    NETWORK_SECONDS,
    PULL_ERRORS,
    scale_up,
    why_no_container,
    why_no_image,
    why_not_created,
    why_queued,
    why_unscheduled,
)

_MISSING = re.compile(r'(?P<kind>secret|configmap) "(?P<name>[^"]+)" not found', re.IGNORECASE)
_VOLUMES = (
    Rule(
        "Multi-Attach|already used by pod",
        "its volume is attached to another node ({reported})",
        "Only one node at a time can use a volume with access mode ReadWriteOnce: use one with ReadWriteMany.",
    ),
    Rule(
        r'for volume "(?P<volume>[^"]+)"\s*: (?P<why>.*)',
        "its volume {volume} cannot be mounted: {why}",
        "It is tried again.",
        NETWORK_SECONDS,
    ),
)
_MOUNT_ERRORS = {
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedBinding",
    "ProvisioningFailed",
}
_NO_START_ERRORS = ("FailedScheduling", "BackOff", "Failed", "DNSConfigForming")
_CONTAINER_ERRORS = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_CONTAINER_ERRORS |= {"CrashLoopBackOff", "CreatePodSandboxError"}

DECISION_SECONDS = 5.0
"""How long the controller of a job may take to report the job's failure after its pods have failed."""
SUBMISSION_SECONDS = 60.0
"""How long the submission of an unreleased job may take until it counts as interrupted."""
STUCK_SECONDS = 60.0
"""How long the kubelet may take to stop a pod after its grace period."""


def why_waiting(objects: Snapshot, pods: Sequence[Pod], now: float, spares: int = 0) -> Why | None:
    """Why a job does not run; None if all its current pods run, or have ended.

    Args:
        spares: how many of its pods may wait. The leader's may not.
    """
    owner = Owner(objects.owner or {})
    if owner.is_suspended and not any(pod.is_running for pod in pods):
        return _suspended(owner, objects.workload, now)
    if stuck := why_stuck(pods, now):
        return stuck
    runs = [pod for pod in pods if pod.is_running or pod.is_over]
    if spares and len(runs) >= owner.hosts - spares and any(pod.is_running and pod.is_leader for pod in runs):
        return None
    events = EventIndex(objects.events)
    found = [(pod, why_pod(pod, events)) for pod in pods if not pod.is_over and not pod.is_running]
    if found:
        pod, why = min(found, key=lambda one: _rank(one[1]))
        if len(found) >= owner.hosts:
            return why
        who = pod.host if len(found) == 1 else f"{len(found)} of {owner.hosts} pods wait, {pod.host}"
        return replace(why, sentence=f"{who}: {why.sentence}")
    return _pauses(pods, now) if len(pods) >= owner.hosts else _uncreated(owner, objects.events, pods, now)


def why_stuck(pods: Sequence[Pod], now: float) -> Why | None:
    """Why a deleted pod does not end; None if there is no such pod."""
    if stuck := next((pod for pod in pods if _is_stuck(pod, now)), None):
        return Why(
            f"pod {stuck.name} was deleted, but its node {stuck.node} does not report that it has ended",
            "Kubernetes replaces it when the node answers again, or is removed from the cluster. If the machine is off "
            f"for good: kubectl delete pod {stuck.name} --force",
            since=when(stuck.found, "metadata", "deletionTimestamp"),
        )
    return None


def _is_stuck(pod: Pod, now: float) -> bool:
    """Whether a pod has not ended long after its grace period. With a failure policy, it is replaced only then."""
    end_by = when(pod.found, "metadata", "deletionTimestamp")  # it includes the grace period
    return bool(pod.node) and not pod.is_over and end_by is not None and now - end_by > STUCK_SECONDS


def _rank(why: Why) -> tuple[bool, bool]:
    """Errors first; reasons that occur at every start last."""
    return not why.is_error, why.sentence.startswith("its container") or not why.sentence


def _pauses(pods: Sequence[Pod], now: float) -> Why | None:
    """Why no pod of a job runs, although the job has not failed."""
    if not all(pod.is_over for pod in pods) or not any(pod.phase == "Failed" for pod in pods):
        return None
    last = max((pod.end.ended for pod in pods if pod.end and pod.end.ended), default=None)
    if last is None or now - last < DECISION_SECONDS:
        return None
    return Why(
        "its pods have ended, and Kubernetes pauses before it starts them again",
        "It does so for 10 seconds after the first failure, and for longer each time, up to 10 minutes.",
        since=last,
    )


def _suspended(owner: Owner, workload: Object | None, now: float) -> Why:
    if owner.is_unreleased:
        if now - owner.created < SUBMISSION_SECONDS:
            return Why("it is being submitted")
        advice = f"It holds no nodes. Remove it with: cloudtrain stop {owner.name}"
        return Why("its submission was interrupted", advice, CONFIGURATION_SECONDS, owner.created)
    if owner.queue:
        is_admitted = workload is not None and holds(workload, "Admitted") is not None
        return (
            Why("Kueue has admitted it, and starts it") if is_admitted else why_queued(workload, owner.queue)
        )
    patch = json.dumps({"spec": suspension(owner.kind, False)})
    start = f"Start it with: kubectl patch {owner.kind.lower()} {owner.name} --type merge -p '{patch}'"
    return Why("it is suspended", start, since=owner.suspended_since)


def _uncreated(owner: Owner, events: Sequence[Object], pods: Sequence[Pod], now: float) -> Why:
    """Why a job has fewer pods than it needs."""
    newest = max((pod.created for pod in pods), default=0.0)
    errors = [event for event in events if text(event, "reason") in CREATE_ERRORS]
    if recent := [event for event in errors if event_time(event) >= newest]:
        why = why_not_created(text(max(recent, key=event_time), "message"))
        return replace(why, since=min(map(_began, recent)))
    for event in reversed(EventIndex(events).about(owner.found)):
        if text(event, "reason") in ("ValidationError", "TrainingRuntimeNotSupported"):
            sentence = f"the operator refuses it: {text(event, 'message')}"
            return Why(sentence, "", CONFIGURATION_SECONDS, _began(event))
    if owner.kind == "MPIJob" and pods and not any(pod.is_leader for pod in pods):
        return Why("its launcher starts when all its workers are ready")
    missing = (
        f"{len(pods)} of its {owner.hosts} pods have been created" if pods else "its pods are being created"
    )
    if owner.kind == "Job" or now - owner.created <= 60:
        return Why(missing)
    return Why(
        missing, f"If this lasts, the controller of {owner.kind} objects does not run in this cluster."
    )


def _began(event: Object) -> float:
    """When the problem in an event began. No pod confirms it, and the event's own times may be forged, so it began at
    the earliest when the API server created the event."""
    return max(first_event_time(event), when(event, "metadata", "creationTimestamp") or 0.0)


def why_pod(pod: Pod, events: EventIndex) -> Why:
    """Why a pod does not run."""
    about = events.about(pod.found)
    scheduled = condition(pod.found, "PodScheduled")
    since = when(scheduled, "lastTransitionTime") or pod.created
    if not pod.node:
        message = text(scheduled, "message") or _last(about, "FailedScheduling", "Unschedulable")
        is_gated = text(scheduled, "reason") == "SchedulingGated"
        why = why_unscheduled("SchedulingGated" if is_gated else message)
        if label(pod.found, QUEUE) and "gate" in why.sentence:
            why = Why("Kueue has not admitted it yet")
        return replace(why, advice=scale_up(about) or why.advice, since=since)
    if pod.phase == "Unknown":
        return Why(
            f"its node {pod.node} does not answer", "If it stays away, the pod starts on another node."
        )
    waiting = pod.waiting
    if waiting.reason in PULL_ERRORS:
        return _no_image(pod, waiting, about, since)
    if waiting.reason in _CONTAINER_ERRORS:
        return replace(why_no_container(waiting.message or waiting.reason), since=since)
    return _starting(pod, waiting, about, since)


def _last(events: Sequence[Object], *reasons: str) -> str:
    return next((text(one, "message") for one in reversed(events) if text(one, "reason") in reasons), "")


def _no_image(pod: Pod, waiting: Waiting, about: Sequence[Object], since: float) -> Why:
    """Why the image is missing. Before 1.32, the state of a container that backs off does not include the cause."""
    image, message = waiting.image or pod.image, waiting.message
    failures = [
        one
        for one in about
        if text(one, "reason") in ("InspectFailed", "ErrImageNeverPull")
        or (text(one, "reason") == "Failed" and text(one, "message").startswith("Failed to pull image"))
    ]
    # while a node retries the pull, the state still shows the previous failure
    pulled_at = max((event_time(one) for one in about if text(one, "reason") == "Pulling"), default=0.0)
    if failures and pulled_at > max(map(event_time, failures)):
        return Why(f"node {pod.node} pulls image {image} again", since=pulled_at)
    if failures and (not message or message.endswith(f'image "{image}"')):
        message = text(failures[-1], "message")
    began = min((first_event_time(one) for one in failures), default=since)
    return replace(why_no_image(waiting.reason, message, image), since=began)


def _starting(pod: Pod, waiting: Waiting, about: Sequence[Object], since: float) -> Why:
    """Why a pod with a node has not started: its volumes, its network or its image."""
    errors = [
        one for one in about if text(one, "type") == "Warning" and text(one, "reason") not in _NO_START_ERRORS
    ]
    # a pod often starts before its ConfigMaps exist; once the image is being pulled, its volumes are mounted
    steps = [event_time(one) for one in about if text(one, "reason") in ("Pulling", "Pulled", "Created")]
    if errors and max(steps, default=0.0) < event_time(errors[-1]):
        return _start_error(errors[-1], label(pod.found, JOB), since)
    for one in items(pod.found, "status", "initContainerStatuses"):
        if part(one, "state", "running"):
            return Why(f"its init container {text(one, 'name')} runs on node {pod.node}")
    news = [text(one, "reason") for one in about if text(one, "reason") in ("Pulling", "Pulled")]
    if news and news[-1] == "Pulling":
        return Why(f"node {pod.node} pulls image {waiting.image or pod.image}", since=since)
    return Why(f"its container is being created on node {pod.node}", since=since)


def _start_error(event: Object, job: str, since: float) -> Why:
    reason, message = text(event, "reason"), text(event, "message").strip()
    missing = _MISSING.search(message)
    if reason == "FailedCreatePodSandBox":
        why = Why(f"its node cannot give it a network: {message}", "It is tried again.", NETWORK_SECONDS)
    elif reason not in _MOUNT_ERRORS:
        why = Why(f"Kubernetes reports {reason}: {message}")
    elif missing and missing["name"] in (job, f"{job}-runtime"):
        # the main object is created first, and its pods may start before the objects that it owns exist
        kind = "Secret" if missing["kind"].lower() == "secret" else "ConfigMap"
        why = Why(
            f"its files, in the {kind} {missing['name']}, are being created",
            "If this lasts, someone has deleted them: submit the job again.",
            CONFIGURATION_SECONDS,
        )
    elif missing:
        why = why_no_container(missing[0])
    else:
        why = first_match(_VOLUMES, message) or Why(message, "It is tried again.", NETWORK_SECONDS)
    return replace(why, since=_began(event) or since)
