"""The cluster's own opinion of the job, which is not kept: schema, webhooks and policies decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeAlreadyExists, KubeForbidden, KubeInvalid
from cloudtrain.platforms.kubernetes.api.kinds import POD
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet


def check_admission(main: Mapping[str, Any], pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Create the main object, and one pod if the user may, as a dry run."""
    api = cluster.api
    what = main["kind"]
    warnings: list[str] = []
    try:
        api.create(main, dry_run=True, warnings=warnings)
        if what != "TrainJob" and api.allowed("create", POD):
            api.create(_pod(main, pods[0]), dry_run=True)
            what += " and its pods"
    except KubeAlreadyExists as error:
        return Finding(CheckStatus.FAILED, error.message, "Choose another job_name, or delete it.")
    except KubeInvalid as error:
        return Finding(CheckStatus.FAILED, error.message, error.hint)
    except KubeForbidden as error:
        return Finding(CheckStatus.UNKNOWN, error.message)
    if warnings:
        return Finding(
            CheckStatus.WARNING,
            f"the cluster accepts the {what}, and warns: {'; '.join(dict.fromkeys(warnings))}",
            "The pods may be refused when they are created.",
        )
    return Finding(CheckStatus.OK, f"the cluster accepts the {what} (a dry run)")


def _pod(main: Mapping[str, Any], group: PodSet) -> dict[str, Any]:
    """A pod as the controller would make it."""
    metadata = {
        "generateName": f"{main['metadata']['name']}-",
        "namespace": main["metadata"]["namespace"],
        "labels": dict(group.labels),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(group.spec)}
