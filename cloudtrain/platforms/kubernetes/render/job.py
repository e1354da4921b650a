"""Renders a job as an Indexed Job, which every cluster runs: one pod for each host, no operator."""

from __future__ import annotations

from typing import Any

from cloudtrain.contract.failure import FINAL_CODE
from cloudtrain.platforms.kubernetes.render.gang import gang_of
from cloudtrain.platforms.kubernetes.render.main_object import RESTART_EXIT_CODE, main_object
from cloudtrain.platforms.kubernetes.render.names import check_name
from cloudtrain.platforms.kubernetes.render.objects import service
from cloudtrain.platforms.kubernetes.render.parts import HostNames, Parts
from cloudtrain.platforms.kubernetes.render.pod import pod_template
from cloudtrain.spec import TrainingJob


def host_names(job: TrainingJob) -> HostNames:
    """The pods of an Indexed Job are called after it, with their index. Raises InvalidJob."""
    assert job.job_name, "a job is named before it is rendered"
    check_name(job.job_name, f"-{job.host_count - 1}")
    return HostNames(tuple(f"{job.job_name}-{index}" for index in range(job.host_count)), job.job_name)


def render_job(parts: Parts) -> dict[str, Any]:
    """The Job. Raises InvalidJob."""
    return main_object(parts, "batch/v1", "Job", job_spec(parts))


def helpers(parts: Parts) -> list[dict[str, Any]]:
    """The objects that a Job needs: its Service, and the group of its pods. Raises InvalidJob."""
    return [service(parts), *gang_of(parts).objects]


def job_spec(parts: Parts) -> dict[str, Any]:
    """The ``spec`` of a Job with all hosts."""
    hosts = len(parts.hosts.names)
    retries = parts.job.max_retry_attempts
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": hosts,
        "parallelism": hosts,
        "backoffLimit": retries,
        # never reached first, but else Kubernetes doubles its pause for each pod that ended: 10 minutes for 7 hosts
        "backoffLimitPerIndex": retries,
        "podFailurePolicy": {"rules": failure_rules(retries)},
        "ttlSecondsAfterFinished": parts.options.ttl,
        "template": pod_template(parts),
    }
    if gang_of(parts).is_suspended:
        spec["suspend"] = True
    return spec


def failure_rules(retries: int) -> list[dict[str, Any]]:
    """Which pods count as failures of the script, in the order in which Kubernetes tries the rules.

    A pod that its node lost, or that ended because another host did, is replaced, and does not count.
    """
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]

    def exits(operator: str) -> dict[str, Any]:
        return {"operator": operator, "values": [RESTART_EXIT_CODE]}

    rules: list[dict[str, Any]] = [
        {"action": "Ignore", "onPodConditions": disrupted},
        {"action": "Ignore", "onExitCodes": exits("In")},
    ]
    if retries:
        rules.append({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FINAL_CODE]}})
    else:
        rules.append({"action": "FailJob", "onExitCodes": exits("NotIn")})
    return rules
