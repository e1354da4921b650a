"""Why a job waits: the most important reason of all its pods, or why it has none."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from cloudtrain.platforms.kubernetes.labels import JOB, QUEUE
from cloudtrain.platforms.kubernetes.life.admission import CREATE_ERRORS, why_not_created
from cloudtrain.platforms.kubernetes.life.images import PULL_ERRORS, why_no_image
from cloudtrain.platforms.kubernetes.life.kueue import is_admitted, why_queued
from cloudtrain.platforms.kubernetes.life.objects import (
    EventIndex,
    JobObjects,
    Object,
    condition,
    event_time,
    first_event_time,
    items,
    label,
    part,
    text,
    when,
)
from cloudtrain.platforms.kubernetes.life.owner import Owner
from cloudtrain.platforms.kubernetes.life.pods import Pod, Waiting
from cloudtrain.platforms.kubernetes.life.scheduling import scale_up, why_unscheduled
from cloudtrain.platforms.kubernetes.life.why import CONFIGURATION_SECONDS, NETWORK_SECONDS, Why
from cloudtrain.platforms.kubernetes.suspension import suspension

_MISSING = re.compile(r'(?P<kind>secret|configmap|Secret|ConfigMap) "(?P<name>[^"]+)" not found')
_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) (?:[^/\s]+/)?(?P<name>\S+)")
_VOLUME = re.compile(r'for volume "(?P<volume>[^"]+)"\s*: (?P<said>.*)', re.DOTALL)
_MOUNT_ERRORS = {
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedBinding",
    "ProvisioningFailed",
}
_NO_START_ERRORS = ("FailedScheduling", "BackOff", "Failed", "DNSConfigForming")
_START = ("CreateContainerError", "RunContainerError", "CrashLoopBackOff", "CreatePodSandboxError")


DECISION_SECONDS = 5.0
"""The time in which the controller of a job says that it has failed, after its pods have."""

SUBMISSION_SECONDS = 60.0
"""For so long, a job that was not released may still be being submitted."""

STUCK_SECONDS = 60.0
"""For so long after its grace period, the kubelet may need to end a pod."""


def why_waiting(objects: JobObjects, pods: Sequence[Pod], now: float) -> Why | None:
    """Why a job does not run; None if all its pods run, or have ended.

    Args:
        pods: the current pods: see `cloudtrain.platforms.kubernetes.life.pods.current`.
    """
    owner = Owner(objects.owner or {})
    if owner.is_suspended and not any(pod.is_running for pod in pods):
        return _suspended(owner, objects.workload, now)
    stuck = next((pod for pod in pods if _is_stuck(pod, now)), None)
    if stuck:
        return Why(
            f"pod {stuck.name} was deleted, but its node {stuck.node} does not say that it has ended",
            "Kubernetes starts it elsewhere when the node answers again, or is removed from the cluster. If the "
            f"machine is off for good: kubectl delete pod {stuck.name} --force",
            since=when(stuck.found, "metadata", "deletionTimestamp"),
        )
    events = EventIndex(objects.events)
    found = [(pod, why_pod(pod, events)) for pod in pods if not pod.is_over and not pod.is_running]
    if found:
        pod, why = min(found, key=lambda one: _rank(one[1]))
        if len(found) < owner.hosts:
            who = pod.host if len(found) == 1 else f"{len(found)} of {owner.hosts} pods wait, {pod.host}"
            return Why(f"{who}: {why.sentence}", why.advice, why.patience, why.since)
        return why
    if len(pods) >= owner.hosts:
        return _pauses(pods, now)
    return _uncreated(owner, objects.events, pods, now)


def _is_stuck(pod: Pod, now: float) -> bool:
    """Whether a pod has not ended long after its grace period: with a failure policy, it is not replaced before."""
    end_by = when(pod.found, "metadata", "deletionTimestamp")  # the grace period is in it
    return bool(pod.node) and not pod.is_over and end_by is not None and now - end_by > STUCK_SECONDS


def _pauses(pods: Sequence[Pod], now: float) -> Why | None:
    """Why none of the pods of a job runs, though it has not failed."""
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


def _rank(why: Why) -> tuple[bool, bool]:
    """Errors first; what happens in every start last."""
    return not why.is_error, why.sentence.startswith("its container") or not why.sentence


def _suspended(owner: Owner, workload: Object | None, now: float) -> Why:
    if owner.is_unreleased:
        if now - owner.created < SUBMISSION_SECONDS:
            return Why("it is being submitted")
        return Why(
            "its submission was interrupted",
            f"It holds no nodes. Remove it with: cloudtrain stop {owner.name}",
            CONFIGURATION_SECONDS,
            owner.created,
        )
    if owner.queue and (workload is None or not is_admitted(workload)):
        return why_queued(workload, owner.queue)
    if owner.queue:
        return Why("Kueue has admitted it, and starts it")
    path = json.dumps({"spec": suspension(owner.kind, False)})
    return Why(
        "it is suspended",
        f"Start it with: kubectl patch {owner.kind.lower()} {owner.name} --type merge -p '{path}'",
        since=owner.suspended_since,
    )


def _uncreated(owner: Owner, events: Sequence[Object], pods: Sequence[Pod], now: float) -> Why:
    """Why a job has fewer pods than it needs."""
    errors = [event for event in events if text(event, "reason") in CREATE_ERRORS]
    newest = max((pod.created for pod in pods), default=0.0)
    recent = [event for event in errors if event_time(event) >= newest]
    if recent:
        why = why_not_created(text(max(recent, key=event_time), "message"))
        return Why(why.sentence, why.advice, why.patience, min(map(_began, recent)))
    said = _refused(owner, events)
    if said:
        return said
    if owner.kind == "MPIJob" and pods and not any(pod.is_leader for pod in pods):
        return Why("its launcher starts when all its workers are ready")
    missing = (
        f"{len(pods)} of its {owner.hosts} pods have been created" if pods else "its pods are being created"
    )
    if owner.kind != "Job" and now - owner.created > 60:
        return Why(
            missing, f"If this lasts, the controller of {owner.kind} objects does not run in this cluster."
        )
    return Why(missing)


def _refused(owner: Owner, events: Sequence[Object]) -> Why | None:
    """Why the operator of an object does nothing about it."""
    for event in reversed(EventIndex(events).about(owner.found)):
        if text(event, "reason") in ("ValidationError", "TrainingRuntimeNotSupported"):
            return Why(
                f"the operator refuses it: {text(event, 'message')}",
                "",
                CONFIGURATION_SECONDS,
                _began(event),
            )
    return None


def _began(event: Object) -> float:
    """When what an event says began. No pod confirms it, and everyone who may create events can write its times; when
    it was created is what the API server says."""
    return max(first_event_time(event), when(event, "metadata", "creationTimestamp") or 0.0)


def why_pod(pod: Pod, events: EventIndex) -> Why:
    """Why a pod does not run."""
    about = events.about(pod.found)
    scheduled = condition(pod.found, "PodScheduled")
    since = when(scheduled, "lastTransitionTime") or pod.created
    if not pod.node:
        message = text(scheduled, "message") or _last(about, "FailedScheduling", "Unschedulable")
        why = why_unscheduled(
            "SchedulingGated" if text(scheduled, "reason") == "SchedulingGated" else message
        )
        if label(pod.found, QUEUE) and "gate" in why.sentence:
            why = Why("Kueue has not admitted it yet")
        grows = scale_up(about)
        return Why(why.sentence, grows or why.advice, why.patience, since)
    if pod.phase == "Unknown":
        return Why(
            f"its node {pod.node} does not answer", "If it stays away, the pod starts on another node."
        )
    waiting = pod.waiting
    if waiting.reason in PULL_ERRORS:
        return _no_image(pod, waiting, about, since)
    if waiting.reason in ("CreateContainerConfigError", *_START):
        why = why_no_container(waiting.message or waiting.reason)
        return Why(why.sentence, why.advice, why.patience, since)
    return _starting(pod, waiting, about, since)


def _last(events: Sequence[Object], *reasons: str) -> str:
    return next((text(one, "message") for one in reversed(events) if text(one, "reason") in reasons), "")


def _no_image(pod: Pod, waiting: Waiting, about: Sequence[Object], since: float) -> Why:
    """Why the image is missing. Before 1.32, the state of a container that backs off does not repeat the cause."""
    failures = [
        one
        for one in about
        if text(one, "reason") in ("InspectFailed", "ErrImageNeverPull")
        or (text(one, "reason") == "Failed" and text(one, "message").startswith("Failed to pull image"))
    ]
    # while a node pulls it again, the state still says how it failed before
    pulled_at = max((event_time(one) for one in about if text(one, "reason") == "Pulling"), default=0.0)
    if failures and pulled_at > max(map(event_time, failures)):
        return Why(f"node {pod.node} pulls image {waiting.image or pod.image} again", since=pulled_at)
    message = waiting.message
    if failures and (not message or message.endswith(f'image "{waiting.image or pod.image}"')):
        message = text(failures[-1], "message")
    began = min((first_event_time(one) for one in failures), default=since)
    why = why_no_image(waiting.reason, message, waiting.image or pod.image)
    return Why(why.sentence, why.advice, why.patience, began)


def why_no_container(message: str) -> Why:
    """The sentence for a container that the kubelet cannot create."""
    words = message.strip()
    if key := _KEY.search(words):
        return Why(
            f"the {key['kind']} {key['name']} has no key {key['key']}",
            "Add the key, or correct its name in the job.",
            CONFIGURATION_SECONDS,
        )
    if missing := _MISSING.search(words):
        kind = _kind(missing)
        return Why(
            f"the {kind} {missing['name']} does not exist in its namespace",
            f"Create it: kubectl create {kind.lower()}{' generic' * (kind == 'Secret')} {missing['name']} ...",
            CONFIGURATION_SECONDS,
        )
    if "non-numeric user" in words:
        return Why(
            f"its image has a user by name, of which Kubernetes cannot say that it is not root ({words})",
            "Set platform_options.run_as_user to the number of that user: docker run --rm IMAGE id -u",
            CONFIGURATION_SECONDS,
        )
    if "runAsNonRoot" in words:
        return Why(
            f"its image runs as root, which its pods may not ({words})",
            "Set platform_options.run_as_user to a number other than 0.",
            CONFIGURATION_SECONDS,
        )
    return Why(f"its container cannot start: {words}", "It is tried again.", NETWORK_SECONDS)


def _kind(missing: re.Match[str]) -> str:
    return "Secret" if missing["kind"].lower() == "secret" else "ConfigMap"


def _starting(pod: Pod, waiting: Waiting, about: Sequence[Object], since: float) -> Why:
    """Why a pod that has a node has not started: its volumes, its network, its image."""
    errors = [
        one for one in about if text(one, "type") == "Warning" and text(one, "reason") not in _NO_START_ERRORS
    ]
    # a pod is often faster than its ConfigMaps: once the image is pulled, its volumes are mounted
    steps = [event_time(one) for one in about if text(one, "reason") in ("Pulling", "Pulled", "Created")]
    if errors and max(steps, default=0.0) < event_time(errors[-1]):
        return _start_error(errors[-1], label(pod.found, JOB), since)
    running = [
        one for one in items(pod.found, "status", "initContainerStatuses") if part(one, "state", "running")
    ]
    if running:
        return Why(f"its init container {text(running[0], 'name')} runs on node {pod.node}")
    news = [text(one, "reason") for one in about if text(one, "reason") in ("Pulling", "Pulled")]
    if news and news[-1] == "Pulling":
        return Why(f"node {pod.node} pulls image {waiting.image or pod.image}", since=since)
    return Why(f"its container is being created on node {pod.node}", since=since)


def _start_error(event: Object, job: str, since: float) -> Why:
    reason, message = text(event, "reason"), text(event, "message").strip()
    began = _began(event) or since
    if reason in _MOUNT_ERRORS:
        missing = _MISSING.search(message)
        if missing and missing["name"] in (job, f"{job}-runtime"):
            # the main object is created first, and its pods may be faster than the objects that it owns
            return Why(
                f"its files, in the {_kind(missing)} {missing['name']}, are being created",
                "If this lasts, someone has deleted them: submit the job again.",
                CONFIGURATION_SECONDS,
                began,
            )
        if missing:
            why = why_no_container(missing[0])
            return Why(why.sentence, why.advice, why.patience, began)
        if "Multi-Attach" in message or "already used by pod" in message:
            return Why(
                f"its volume is attached to another node ({message})",
                "Only one node at a time can use a volume with access mode ReadWriteOnce: use one with ReadWriteMany.",
                since=began,
            )
        found = _VOLUME.search(message)
        what = f"volume {found['volume']} cannot be mounted: {found['said']}" if found else message
        return Why(f"its {what}" if found else what, "It is tried again.", NETWORK_SECONDS, began)
    if reason == "FailedCreatePodSandBox":
        return Why(
            f"its node cannot give it a network: {message}", "It is tried again.", NETWORK_SECONDS, began
        )
    return Why(f"Kubernetes says {reason}: {message}", "", None, began)
