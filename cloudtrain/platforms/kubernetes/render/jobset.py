"""A job as a JobSet: one Indexed Job, which JobSet's controller starts again as a whole."""

from __future__ import annotations

from typing import Any

from cloudtrain.platforms.kubernetes.labels import job_labels
from cloudtrain.platforms.kubernetes.render.gang import gang_of
from cloudtrain.platforms.kubernetes.render.job import job_spec
from cloudtrain.platforms.kubernetes.render.main_object import RESTART_EXIT_CODE, main_object
from cloudtrain.platforms.kubernetes.render.names import LONGEST, check_name
from cloudtrain.platforms.kubernetes.render.parts import HostNames, Parts
from cloudtrain.spec import TrainingJob

NODE = "node"
"""The name of the only replicated job. Kubeflow's runtimes have the same."""
_RANDOM = "-xxxxx"
"""The characters that a Job's controller adds to the name of a pod."""


def host_names(job: TrainingJob) -> HostNames:
    """The pods of a JobSet are called after it, its replicated job, and their index. Raises InvalidJob."""
    assert job.job_name, "a job is named before it is rendered"
    check_name(job.job_name, f"-{NODE}-0-{job.host_count - 1}{_RANDOM}")
    names = (f"{job.job_name}-{NODE}-0-{index}" for index in range(job.host_count))
    return HostNames(tuple(names), job.job_name)


def helpers(parts: Parts) -> list[dict[str, Any]]:
    """The object that JobSet's controller does not make: the group of the pods. Raises InvalidJob."""
    return list(gang_of(parts).objects)


def render_jobset(parts: Parts) -> dict[str, Any]:
    """The JobSet. Its controller creates the Service. Raises InvalidJob.

    ``maxRestarts`` counts failures of the script only:

    - A pod that was evicted, preempted, or lost with its node has the condition ``DisruptionTarget``. It fails the Job
      with the reason ``PodFailurePolicy``, and the JobSet starts again without counting.
    - A host that ends through no fault of the script exits with `RESTART_EXIT_CODE`. The Job replaces its pod.
    - Any other failure exceeds the Job's ``backoffLimit``, which counts as a restart.

    The two reasons keep these apart in every version of JobSet; before 0.10, it ignores patterns of messages.
    """
    job = job_spec(parts)
    for of_jobset in ("ttlSecondsAfterFinished", "suspend"):
        job.pop(of_jobset, None)
    job |= {"backoffLimit": 0, "backoffLimitPerIndex": 0, "podFailurePolicy": {"rules": _POD_FAILURE_RULES}}
    node = {"metadata": {"labels": job_labels(parts.name)}, "spec": job}
    spec: dict[str, Any] = {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": parts.hosts.service,
        },
        "failurePolicy": {
            "maxRestarts": parts.job.max_retry_attempts,
            "rules": [
                {
                    "name": "disrupted",
                    "action": "RestartJobSetAndIgnoreMaxRestarts",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                },
                {"name": "stopped", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
            ],
        },
        "ttlSecondsAfterFinished": parts.options.ttl,
        "replicatedJobs": [{"name": NODE, "replicas": 1, "template": node}],
    }
    # the address becomes a label, too
    if len(f"{parts.hosts.names[0]}.{parts.hosts.service}") <= LONGEST:
        spec["coordinator"] = {"replicatedJob": NODE, "jobIndex": 0, "podIndex": 0}
    if gang_of(parts).is_suspended:
        spec["suspend"] = True
    return main_object(parts, "jobset.x-k8s.io/v1alpha2", "JobSet", spec)


_POD_FAILURE_RULES = [
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {
        "action": "Ignore",
        "onExitCodes": {"operator": "In", "values": [RESTART_EXIT_CODE]},
    },
]
