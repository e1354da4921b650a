"""Checks of the nodes: whether the job's pods fit on them, and how many GPUs are free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeTooLarge
from cloudtrain.platforms.kubernetes.api.kinds import NODE, POD
from cloudtrain.platforms.kubernetes.doctor.amounts import amount, requests_of
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet
from cloudtrain.platforms.kubernetes.quantities import show_quantity

MOST_NAMES = 6
CONDITIONS = "node.kubernetes.io/"
"""The beginning of the taints by which Kubernetes says that a node is not ready, or short of something."""

_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-", "attachable-volumes")


@dataclass(frozen=True)
class Node:
    """A node: what it has, and what pods have taken of it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    has: Mapping[str, Fraction]
    taken: Mapping[str, Fraction] | None
    """None if the user may not see the pods of other namespaces."""
    is_ready: bool

    def fitting(self, wants: Mapping[str, Fraction], *, free: bool) -> int:
        """How many pods fit on it: when it is empty, or next to those that it has."""
        counts = [Fraction(10**6)]
        for resource, each in wants.items():
            if each > 0:
                taken = (self.taken or {}).get(resource, Fraction(0)) if free else Fraction(0)
                counts.append((self.has.get(resource, Fraction(0)) - taken) / each)
        return max(0, int(min(counts)))

    @property
    def devices(self) -> dict[str, Fraction]:
        """Its GPUs and other devices."""
        return {name: count for name, count in self.has.items() if not name.startswith(_PLAIN) and count > 0}


def check_devices(cluster: Cluster) -> Finding:
    """The GPUs of the cluster, by node."""
    texts = []
    for node in nodes_of(cluster):
        for resource, count in node.devices.items():
            free = "" if node.taken is None else f"{count - node.taken.get(resource, Fraction(0))} of "
            texts.append(f"{node.name}: {free}{count} {resource}{'' if node.taken is None else ' free'}")
    if not texts:
        return Finding(
            CheckStatus.OK,
            "no node has GPUs now",
            "A cluster that adds nodes may have none until a job asks.",
        )
    return Finding(CheckStatus.OK, _shortened(texts, "; "))


def check_nodes(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Whether all pods fit on the nodes, and whether they do now."""
    nodes = nodes_of(cluster)
    for group in pods:
        if problem := _problem(group, nodes):
            return problem
    is_waiting = any(
        sum(
            node.fitting(requests_of(group.spec), free=True) for node in nodes if not _unsuitable(group, node)
        )
        < group.count
        for group in pods
    )
    asked = " and ".join(_asked(group) for group in pods)
    if any(node.taken is None for node in nodes):
        return Finding(CheckStatus.OK, f"{asked} fit on the nodes; whether they are free, you may not see")
    if is_waiting:
        return Finding(
            CheckStatus.WARNING,
            f"{asked} fit on the nodes, but not next to what runs there now",
            "The job waits until others end. Without a gang (platform_options.queue or gang), it may hold some nodes "
            "meanwhile.",
        )
    return Finding(CheckStatus.OK, f"{asked} fit, and the nodes are free now")


def nodes_of(cluster: Cluster) -> list[Node]:
    """All nodes. Raises KubeError."""
    try:
        taken: dict[str, dict[str, Fraction]] | None = _taken(cluster)
    except (KubeForbidden, KubeTooLarge):
        taken = None
    return [_node(found, taken) for found in cluster.list(NODE)]


def _taken(cluster: Cluster) -> dict[str, dict[str, Fraction]]:
    """The requests of the pods of all namespaces, by node. Raises KubeForbidden, KubeTooLarge."""
    total: dict[str, dict[str, Fraction]] = {}
    running = "status.phase!=Succeeded,status.phase!=Failed"
    found, _ = cluster.api.list(POD, fields=running, all_namespaces=True, keep=_requests)
    for pod in found:
        of_node = total.setdefault(pod["node"], {})
        for resource, each in pod["requests"].items():
            of_node[resource] = of_node.get(resource, Fraction(0)) + each
    return total


def _requests(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod that counts: clusters have 100,000."""
    spec = pod.get("spec") or {}
    return {"node": str(spec.get("nodeName")), "requests": requests_of(spec)}


def _node(found: Mapping[str, Any], taken: Mapping[str, Mapping[str, Fraction]] | None) -> Node:
    spec, status, metadata = found.get("spec") or {}, found.get("status") or {}, found["metadata"]
    ready = [one for one in status.get("conditions") or [] if one.get("type") == "Ready"]
    return Node(
        metadata["name"],
        metadata.get("labels") or {},
        [taint for taint in spec.get("taints") or [] if taint.get("effect") != "PreferNoSchedule"],
        {name: amount(value) for name, value in (status.get("allocatable") or {}).items()},
        None if taken is None else taken.get(metadata["name"], {}),
        not spec.get("unschedulable") and all(one.get("status") == "True" for one in ready),
    )


def _problem(group: PodSet, nodes: Sequence[Node]) -> Finding | None:
    wants = requests_of(group.spec)
    reasons: dict[str, list[str]] = {}
    total = 0
    for node in nodes:
        if reason := _unsuitable(group, node):
            reasons.setdefault(reason, []).append(node.name)
        else:
            total += node.fitting(wants, free=False)
    if total >= group.count:
        return None
    if total:
        what = f"{_asked(group)}, and only {total} fit on the nodes"
    else:
        whys = [f"{_shortened(names, ', ')}: {reason}" for reason, names in reasons.items()]
        what = f"no node is fit for {_asked(group)}. {'; '.join(whys) or 'The cluster has no nodes now'}"
    return Finding(
        CheckStatus.WARNING,
        what,
        "Such a job waits forever, unless the cluster adds nodes (Karpenter, cluster autoscaler). Check gpus, cpu, "
        "memory, node_selector and tolerations.",
    )


def _unsuitable(group: PodSet, node: Node) -> str:
    """Why no pod can ever run there; empty if one can."""
    for key, value in (group.spec.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return f"no label {key}={value}"
    if not node.is_ready or any(str(taint.get("key")).startswith(CONDITIONS) for taint in node.taints):
        return "not ready, or cordoned"
    tolerations = group.spec.get("tolerations") or []
    for taint in node.taints:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"the taint {taint.get('key')}{value} is not tolerated"
    for resource, each in requests_of(group.spec).items():
        has = node.has.get(resource, Fraction(0))
        if each > has:
            return f"has {show_quantity(has, resource)} {resource}" if has else f"has no {resource}"
    return ""


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def _asked(group: PodSet) -> str:
    wants = [
        f"{show_quantity(each, name)} {name}"
        for name, each in sorted(requests_of(group.spec).items())
        if each
    ]
    pods = "1 pod" if group.count == 1 else f"{group.count} pods"
    return f"{pods} with {', '.join(wants)}" if wants else pods


def _shortened(texts: Sequence[str], separator: str) -> str:
    rest = f"{separator}and {len(texts) - MOST_NAMES} more" if len(texts) > MOST_NAMES else ""
    return separator.join(texts[:MOST_NAMES]) + rest
