"""Checks of the PersistentVolumeClaims that the pods mount."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.api.kinds import STORAGE_CLASS, VOLUME_CLAIM
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet


def check_volumes(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """The claims that the pods mount: whether they exist, and fit for as many pods."""
    count = sum(group.count for group in pods)
    fine, findings = [], []
    for name, is_read_only in claims_of(pods).items():
        claim = cluster.find(VOLUME_CLAIM, name)
        finding = _claim_problem(name, claim, count, is_read_only, cluster)
        if finding:
            findings.append(finding)
        else:
            assert claim
            size = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "size unknown")
            fine.append(f"{name} ({', '.join(_modes(claim))}, {size})")
    for status in (CheckStatus.FAILED, CheckStatus.WARNING):
        for finding in findings:
            if finding.status == status:
                return finding
    return Finding(CheckStatus.OK, ", ".join(fine))


def claims_of(pods: Sequence[PodSet]) -> dict[str, bool]:
    """The names of the claims that the pods mount, and whether they only read them."""
    found: dict[str, bool] = {}
    for group in pods:
        mounts = [
            mount for one in group.spec.get("containers") or [] for mount in one.get("volumeMounts") or []
        ]
        for volume in group.spec.get("volumes") or []:
            claim = volume.get("persistentVolumeClaim")
            if claim:
                own = [
                    bool(mount.get("readOnly")) for mount in mounts if mount.get("name") == volume.get("name")
                ]
                reads = bool(claim.get("readOnly")) or (bool(own) and all(own))
                found[claim["claimName"]] = found.get(claim["claimName"], True) and reads
    return found


def _claim_problem(
    name: str, claim: Mapping[str, Any] | None, count: int, is_read_only: bool, cluster: Cluster
) -> Finding | None:
    if claim is None:
        return Finding(
            CheckStatus.FAILED,
            f"there is no PersistentVolumeClaim {name} in the namespace {cluster.api.namespace}",
            "The pods would wait forever. kubectl get pvc lists them.",
        )
    phase, modes = (claim.get("status") or {}).get("phase"), _modes(claim)
    if phase == "Lost":
        return Finding(
            CheckStatus.FAILED, f"the volume of {name} is lost", "Restore it, or use another claim."
        )
    if modes == ["ReadWriteOncePod"] and count > 1:
        return Finding(
            CheckStatus.FAILED,
            f"{name} can be mounted by one pod (ReadWriteOncePod), and the job has {count}",
            "Use a claim with ReadWriteMany, such as NFS, EFS, FSx for Lustre or CephFS.",
        )
    if modes == ["ReadOnlyMany"] and not is_read_only:
        return Finding(
            CheckStatus.FAILED,
            f"{name} can only be read (ReadOnlyMany)",
            f"Write {name}:/PATH:ro in volumes.",
        )
    if count > 1 and "ReadWriteMany" not in modes and not (is_read_only and "ReadOnlyMany" in modes):
        return Finding(
            CheckStatus.WARNING,
            f"{name} can be mounted on one node at a time ({', '.join(modes)}), and the job has {count} pods",
            "All pods must fit on that node. For more nodes, use a claim with ReadWriteMany.",
        )
    return _class_problem(name, claim, cluster) if phase == "Pending" else None


def _class_problem(name: str, claim: Mapping[str, Any], cluster: Cluster) -> Finding | None:
    """Why a claim without a volume may never get one."""
    class_name = (claim.get("spec") or {}).get("storageClassName")
    if not class_name:
        return Finding(
            CheckStatus.WARNING,
            f"{name} has no volume yet, and no storage class that makes one",
            "kubectl describe pvc says what it waits for.",
        )
    try:
        found = cluster.find(STORAGE_CLASS, class_name)
    except KubeForbidden:
        return None
    if found is None:
        return Finding(
            CheckStatus.FAILED,
            f"{name} has no volume, and there is no storage class {class_name} that would make one",
            "kubectl get storageclasses lists them.",
        )
    if found.get("volumeBindingMode") == "WaitForFirstConsumer":
        return None
    return Finding(
        CheckStatus.WARNING,
        f"{name} has no volume yet",
        f"kubectl describe pvc {name} says what it waits for.",
    )


def _modes(claim: Mapping[str, Any]) -> list[str]:
    modes = (
        (claim.get("status") or {}).get("accessModes") or (claim.get("spec") or {}).get("accessModes") or []
    )
    return [str(mode) for mode in modes]
