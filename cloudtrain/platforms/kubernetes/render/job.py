"""A job as an Indexed Job, which every cluster runs, and as a JobSet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from cloudtrain.contract.failure import FINAL_CODE
from cloudtrain.platforms.kubernetes.api.kinds import JOB, JOB_SET, Kind
from cloudtrain.platforms.kubernetes.labels import SETTINGS, job_labels
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.objects import gang_of, service
from cloudtrain.platforms.kubernetes.render.parts import LONGEST, RESTART_EXIT_CODE, HostNames, Parts, name_of
from cloudtrain.platforms.kubernetes.render.pod import pod_template
from cloudtrain.spec import TrainingJob

NODE = "node"
"""The name of the only replicated job of a JobSet. Kubeflow's runtimes have the same."""

_DISRUPTED: list[Any] = [{"type": "DisruptionTarget", "status": "True"}]
_RESTARTS: dict[str, Any] = {
    "action": "Ignore",
    "onExitCodes": {"operator": "In", "values": [RESTART_EXIT_CODE]},
}


class Rendering:
    """One way to run a job: as an Indexed Job. The other kinds of main objects differ in what they override."""

    kind: ClassVar[Kind] = JOB
    options: ClassVar[tuple[str, ...]] = ()
    """The options that other renderings do not have."""

    def host_names(self, job: TrainingJob) -> HostNames:
        """Raises InvalidJob."""
        name = name_of(job, f"-{job.host_count - 1}")
        return HostNames(tuple(f"{name}-{index}" for index in range(job.host_count)), name)

    def settings(self, job: TrainingJob, options: KubernetesOptions) -> Mapping[str, Any]:
        """The runtime's settings that differ."""
        return {}

    def helpers(self, parts: Parts) -> list[dict[str, Any]]:
        """The objects that no controller makes for a main object of this kind, and that other kinds do not need."""
        return [service(parts), *gang_of(parts).objects]

    def spec(self, parts: Parts) -> dict[str, Any]:
        """The main object's ``spec``. Raises InvalidJob."""
        retries = parts.job.max_retry_attempts
        counted = {"operator": "In", "values": [FINAL_CODE]}
        if not retries:
            counted = {"operator": "NotIn", "values": [RESTART_EXIT_CODE]}
        # a pod that its node lost, or that ended because another host did, is replaced, and does not count
        ignored: list[dict[str, Any]] = [{"action": "Ignore", "onPodConditions": _DISRUPTED}, _RESTARTS]
        return {
            **_indexed(parts, retries, [*ignored, {"action": "FailJob", "onExitCodes": counted}]),
            "ttlSecondsAfterFinished": parts.options.ttl,
            "template": pod_template(parts),
        }

    def main_object(self, parts: Parts) -> dict[str, Any]:
        """The object that owns all others of the job. Raises InvalidJob."""
        options, gang, spec = parts.options, gang_of(parts), self.spec(parts)
        if gang.is_suspended:
            spec.get("runPolicy", spec)["suspend"] = True
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {
                "name": parts.name,
                "namespace": parts.namespace,
                "labels": {**options.labels, **gang.labels, **job_labels(parts.name)},
                "annotations": {**options.annotations, SETTINGS: json.dumps(parts.summary)},
            },
            "spec": spec,
        }


class JobSetRendering(Rendering):
    """One Indexed Job, which JobSet's controller restarts as a whole. It also makes the Service.

    ``maxRestarts`` counts failures of the script only:

    - A pod that was evicted, preempted, or lost with its node has the condition ``DisruptionTarget``. It fails the Job
      with the reason ``PodFailurePolicy``, and the JobSet restarts without counting.
    - A host that ends through no fault of the script exits with `RESTART_EXIT_CODE`. The Job replaces its pod.
    - Any other failure exceeds the Job's ``backoffLimit``, which counts as a restart.

    The two reasons keep these apart in every version of JobSet; before 0.10, it ignores patterns of messages.
    """

    kind = JOB_SET

    def host_names(self, job: TrainingJob) -> HostNames:
        name = name_of(
            job, f"-{NODE}-0-{job.host_count - 1}-xxxxx"
        )  # the Job's controller adds random characters
        return HostNames(tuple(f"{name}-{NODE}-0-{index}" for index in range(job.host_count)), name)

    def helpers(self, parts: Parts) -> list[dict[str, Any]]:
        return list(gang_of(parts).objects)

    def spec(self, parts: Parts) -> dict[str, Any]:
        rules: list[dict[str, Any]] = [{"action": "FailJob", "onPodConditions": _DISRUPTED}, _RESTARTS]
        job = {**_indexed(parts, 0, rules), "template": pod_template(parts)}
        node = {"metadata": {"labels": job_labels(parts.name)}, "spec": job}
        disrupted = {
            "name": "disrupted",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
        stopped = {"name": "stopped", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
        service = parts.hosts.service
        spec: dict[str, Any] = {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": service},
            "failurePolicy": {"maxRestarts": parts.job.max_retry_attempts, "rules": [disrupted, stopped]},
            "ttlSecondsAfterFinished": parts.options.ttl,
            "replicatedJobs": [{"name": NODE, "replicas": 1, "template": node}],
        }
        if len(f"{parts.hosts.names[0]}.{service}") <= LONGEST:  # the address becomes a label, too
            spec["coordinator"] = {"replicatedJob": NODE, "jobIndex": 0, "podIndex": 0}
        return spec


def _indexed(parts: Parts, retries: int, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of an Indexed Job.

    Args:
        rules: which pods count as failures, in the order in which Kubernetes tries them.
    """
    hosts = len(parts.hosts.names)
    return {
        "completionMode": "Indexed",
        "completions": hosts,
        "parallelism": hosts,
        "backoffLimit": retries,
        # never reached first, but else Kubernetes doubles its pause for each pod that ended: 10 minutes for 7 hosts
        "backoffLimitPerIndex": retries,
        "podFailurePolicy": {"rules": rules},
    }
