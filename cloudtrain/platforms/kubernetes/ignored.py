"""Warns about the fields of a job that have no effect on Kubernetes."""

from __future__ import annotations

from collections.abc import Container

from cloudtrain.platforms.common.ignored import OF_SAGEMAKER
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

_INSTEAD = {
    "use_spot_instances": "choose spot nodes with platform_options.node_selector and tolerations",
    "max_wait": "a job waits for nodes without limit; stop it with cloudtrain stop",
    "max_pending_time_in_seconds": "a job waits for nodes without limit; stop it with cloudtrain stop",
    "role": "give the pods a role with platform_options.service_account",
    "tags": "use platform_options.labels",
    "volume_size": "use platform_options.disk",
    "encrypt_inter_container_traffic": "what ranks send to each other is not encrypted, unless the cluster's network "
    "does it",
    "output_kms_key": "S3 encrypts the outputs as their bucket says",
    "volume_kms_key": "storage classes say how volumes are encrypted",
    "subnets": "the cluster has its own network",
    "security_group_ids": "the cluster has its own network",
    "instance_placement_config": "use platform_options.topology or affinity",
}


def ignored_fields(job: TrainingJob) -> list[str]:
    """A warning, one sentence, for each field of ``job`` that has no effect here."""
    given = job.to_dict()
    options = job.platform_options
    found = [
        f"{name} has no effect on Kubernetes: {instead}"
        for name, instead in _INSTEAD.items()
        if name in given
    ]
    if options.get("host_network") and options.get("network_policy", True):
        found.append(
            "platform_options.host_network: no NetworkPolicy applies to pods in the network of their nodes, so other "
            "pods can reach those of this job"
        )
    if "checkpoint_s3_uri" not in given:
        found.append(
            _without_checkpoints(given, options.get("max_preemptions", KubernetesOptions().max_preemptions))
        )
    others = [name for name in OF_SAGEMAKER if name in given]
    if others:
        verb = "has" if len(others) == 1 else "have"
        found.append(f"{', '.join(others)} {verb} no effect on Kubernetes: only SageMaker has this service")
    return found


def _without_checkpoints(given: Container[str], most: int) -> str:
    """A warning of how a job without checkpoints continues after its pods were lost."""
    if "output_path" not in given:
        return (
            "no checkpoint_s3_uri and no output_path: a job whose pods are evicted, preempted or lost starts from "
            "zero, without a limit"
        )
    return (
        "no checkpoint_s3_uri: a job whose pods are evicted, preempted or lost starts from zero, and ends after "
        f"platform_options.max_preemptions ({most})"
    )
