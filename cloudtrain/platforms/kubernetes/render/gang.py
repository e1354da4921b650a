"""Starts all hosts of a job together: Kueue, Volcano, or the coscheduling plug-in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.labels import QUEUE, job_labels
from cloudtrain.platforms.kubernetes.render.parts import Parts

PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
COSCHEDULER = "scheduler-plugins-scheduler"


@dataclass(frozen=True)
class Gang:
    """The fields and objects that start all hosts together."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the main object."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    pod_spec: Mapping[str, Any] = field(default_factory=dict)
    is_suspended: bool = False
    """Whether the main object starts suspended: Kueue lets it run when its queue admits it."""
    objects: tuple[dict[str, Any], ...] = ()
    """Further objects that the job owns."""


def kind_of(parts: Parts) -> str:
    """The kind of gang. A ``queue`` alone is one of Kueue. Raises InvalidJob."""
    options = parts.options
    kind = options.gang or ("kueue" if options.queue else "none")
    if kind == "kueue" and not options.queue:
        raise InvalidJob(
            "platform_options.gang: kueue needs a queue",
            hint="Set platform_options.queue to the name of a LocalQueue: kubectl get localqueues",
        )
    if options.queue and kind in ("none", "coscheduling"):
        raise InvalidJob(
            f"platform_options.queue: has no effect with gang: {kind}",
            hint="Queues are those of kueue and volcano: choose one, or leave the queue out.",
        )
    return kind


def gang_of(parts: Parts) -> Gang:
    """Raises InvalidJob."""
    kind, options, name = kind_of(parts), parts.options, parts.name
    if kind == "kueue":
        annotations = {PREFERRED_TOPOLOGY: options.topology} if options.topology else {}
        return Gang(labels={QUEUE: options.queue or ""}, pod_annotations=annotations, is_suspended=True)
    if kind == "volcano":
        group = _pod_group(parts, "scheduling.volcano.sh/v1beta1", {"queue": options.queue or "default"})
        return Gang(
            pod_annotations={"scheduling.k8s.io/group-name": name},
            pod_spec={"schedulerName": options.scheduler or "volcano"},
            objects=(group,),
        )
    if kind == "coscheduling":
        timeout = {"scheduleTimeoutSeconds": 60}
        return Gang(
            pod_labels={"scheduling.x-k8s.io/pod-group": name},
            pod_spec={"schedulerName": options.scheduler or COSCHEDULER},
            objects=(_pod_group(parts, "scheduling.x-k8s.io/v1alpha1", timeout),),
        )
    return Gang()


def _pod_group(parts: Parts, version: str, more: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"minMember": len(parts.hosts.names), **more}
    if parts.options.priority_class and "volcano" in version:
        spec["priorityClassName"] = parts.options.priority_class
    return {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {
            "name": parts.name,
            "namespace": parts.namespace,
            "labels": job_labels(parts.name),
        },
        "spec": spec,
    }
