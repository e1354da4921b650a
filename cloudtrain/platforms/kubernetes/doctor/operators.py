"""Checks of the operators and queues that the cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.errors import nearest
from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeError, KubeForbidden
from cloudtrain.platforms.kubernetes.api.kinds import (
    COSCHEDULING_POD_GROUP,
    JOB_SET,
    LOCAL_QUEUE,
    MPI_JOB,
    TRAIN_JOB,
    VOLCANO_POD_GROUP,
    WORKLOAD,
    kind_of,
)
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.labels import QUEUE

OPERATORS = {
    "JobSet": JOB_SET,
    "Kubeflow Trainer": TRAIN_JOB,
    "MPI operator": MPI_JOB,
    "Kueue": WORKLOAD,
    "Volcano": VOLCANO_POD_GROUP,
    "coscheduling": COSCHEDULING_POD_GROUP,
}


def check_operators(cluster: Cluster) -> Finding:
    """Which operators there are, in which version. None is needed."""
    found, others = [], []
    for name, kind in OPERATORS.items():
        served = cluster.api.served(kind)
        if served is None:
            continue
        found.append(f"{name} ({served.api_version})")
        if served.version != kind.version and kind in (JOB_SET, TRAIN_JOB, MPI_JOB):
            others.append(f"{name} has {served.version}, and cloudtrain uses {kind.version}")
    if others:
        return Finding(
            CheckStatus.WARNING,
            f"{'; '.join(others)}. Found: {', '.join(found)}",
            "Jobs run as plain Jobs there, which need no operator. Upgrade it, or cloudtrain.",
        )
    return Finding(CheckStatus.OK, ", ".join(found) or "none: jobs run as plain Jobs, which need no operator")


def check_main_kind(main: Mapping[str, Any], why: str, cluster: Cluster) -> Finding:
    """The kind of object that the job becomes."""
    kind = kind_of(main)
    served = cluster.api.served(kind)
    if served is None or served.version != kind.version:
        return Finding(
            CheckStatus.FAILED,
            f"the cluster does not have {kind.kind} of {kind.api_version}",
            "Set platform_options.rendering: job, which every cluster has, or install the operator.",
        )
    return Finding(CheckStatus.OK, f"{kind.kind} of {kind.api_version}: {why}")


def check_queue(main: Mapping[str, Any], cluster: Cluster) -> Finding:
    """The Kueue queue of the job."""
    name = main["metadata"]["labels"][QUEUE]
    kind = cluster.api.served(LOCAL_QUEUE)
    if kind is None:
        return Finding(
            CheckStatus.FAILED,
            f"the job has the queue {name}, and the cluster does not have Kueue",
            "The job would stay suspended: remove platform_options.queue.",
        )
    queue = cluster.find(kind, name)
    if queue is None:
        return Finding(
            CheckStatus.FAILED,
            f"there is no LocalQueue {name} in the namespace {cluster.api.namespace}",
            _known(cluster, name) or "kubectl get localqueues lists them.",
        )
    status = queue.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "Active" and condition.get("status") == "False":
            return Finding(
                CheckStatus.FAILED,
                f"the queue {name} admits no jobs: {condition.get('message')}",
                "Ask the administrators, or choose another queue.",
            )
    waiting = status.get("pendingWorkloads") or 0
    return Finding(CheckStatus.OK, f"the queue {name} is active; {waiting} jobs wait in it")


def check_gang(main: Mapping[str, Any], group: Mapping[str, Any], cluster: Cluster) -> Finding:
    """The scheduler that starts all hosts together."""
    kind = kind_of(group)
    if not cluster.api.has(kind):
        return Finding(
            CheckStatus.FAILED,
            f"the cluster does not have {kind.kind} of {kind.api_version}, which platform_options.gang needs",
            "Remove platform_options.gang, or ask the administrators to install the scheduler.",
        )
    return Finding(CheckStatus.OK, f"all {main['kind']} pods start together, through {kind.group}")


def _known(cluster: Cluster, name: str) -> str:
    try:
        kind = cluster.api.served(LOCAL_QUEUE)
        names = [item["metadata"]["name"] for item in cluster.list(kind)] if kind else []
    except (KubeForbidden, KubeError):
        return ""
    return nearest(name, names) if names else ""
