"""Checks of the connection: the context, its server, its version."""

from __future__ import annotations

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.api.kinds import NAMESPACE
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster

INDEXED_JOBS = (1, 24)
FAILURE_POLICY = (1, 31)
FAILURE_POLICY_BETA = (1, 26)


def check_context(cluster: Cluster) -> Finding:
    """Where jobs would go, and how the client logs in. Raises PlatformError."""
    api = cluster.api
    where = f"context {api.context}, namespace {api.namespace}, at {api.server}, with {api.method}"
    try:
        found = cluster.find(NAMESPACE, api.namespace)
    except KubeForbidden:
        return Finding(CheckStatus.OK, where)
    if found is None:
        return Finding(
            CheckStatus.FAILED,
            f"there is no namespace {api.namespace} ({where})",
            f"Set platform_options.namespace to one that exists, or: kubectl create namespace {api.namespace}",
        )
    if (found.get("status") or {}).get("phase") == "Terminating":
        return Finding(
            CheckStatus.FAILED, f"the namespace {api.namespace} is being deleted", "Use another one."
        )
    return Finding(CheckStatus.OK, where)


def check_version(cluster: Cluster) -> Finding:
    """The server's version, and what jobs lack on an old one."""
    major, minor, text = cluster.api.server_version()
    version = (major, minor)
    name = f"Kubernetes {text or f'{major}.{minor}'}"
    if version < (1, 21):
        return Finding(
            CheckStatus.FAILED,
            f"{name} has no Indexed Jobs: pods would not know their number",
            "Jobs need 1.24 or newer: ask the administrators for an upgrade, or use another cluster.",
        )
    if version < INDEXED_JOBS:
        what = "has Indexed Jobs as a beta, and no podFailurePolicy"
    elif version < FAILURE_POLICY_BETA:
        what = "has no podFailurePolicy"
    elif version < FAILURE_POLICY:
        return Finding(CheckStatus.OK, f"{name} (podFailurePolicy is a beta, on by default)")
    else:
        return Finding(CheckStatus.OK, name)
    return Finding(
        CheckStatus.WARNING,
        f"{name} {what}: evictions and lost nodes count as failures of the script",
        "Set max_retry_attempts, or use Kubernetes 1.26 or newer.",
    )
