"""Checks of what pods request against the quotas of the namespace, and against the nodes.

A dry run shows what the cluster has against one pod: see `access.check_admission`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloudtrain.platforms.checks import Finding
from cloudtrain.platforms.kubernetes.api.kinds import NODE, RESOURCE_QUOTA
from cloudtrain.platforms.kubernetes.doctor.cluster import Cluster, failed, ok, warning
from cloudtrain.platforms.kubernetes.life.objects import PodSet
from cloudtrain.platforms.kubernetes.quantities import parse_quantity, show_quantity

Amounts = Mapping[str, Fraction]

NONE = Fraction(0)
MOST_NAMES = 6
CONDITIONS = "node.kubernetes.io/"
"""The beginning of the taints by which Kubernetes reports that a node is not ready, or short of something."""
_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-", "attachable-volumes")


def amount(value: object) -> Fraction:
    """The number that a quantity is; 0 for what is not a quantity."""
    return parse_quantity(value) or NONE


def requests_of(spec: Mapping[str, Any], *fields: str) -> dict[str, Fraction]:
    """The requests of all containers of a pod together; a limit alone is a request, too.

    Args:
        fields: of the containers' resources: ``limits`` for the limits alone.
    """
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or []:
        given = container.get("resources") or {}
        merged: dict[str, Any] = {}
        for field in fields or ("limits", "requests"):
            merged.update(given.get(field) or {})
        for name, value in merged.items():
            total[name] = total.get(name, NONE) + amount(value)
    return total


def check_quota(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Every ResourceQuota of the namespace. Without pods: what is left of them."""
    quotas = [quota for quota in cluster.list(RESOURCE_QUOTA) if _applies(quota, pods)]
    if not quotas:
        return ok("the namespace has no quota that applies")
    never, waits, left = [], [], []
    for quota in quotas:
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        for resource, limit in hard.items():
            wanted = _wanted(pods, resource)
            if wanted is None:
                continue
            most, used = amount(limit), amount((status.get("used") or {}).get(resource, 0))
            shown = [show_quantity(value, resource) for value in (wanted, used, most, most - used)]
            text = f"{name}: {shown[0]} {resource}, {shown[1]} of {shown[2]} in use"
            if wanted > most:
                never.append(text)
            elif wanted + used > most:
                waits.append(text)
            left.append(f"{name}: {shown[3]} {resource}")
    if never:
        return failed(
            f"the job asks for more than its quota: {'; '.join(never)}", "Ask for less, or for more quota."
        )
    if waits:
        return warning(
            f"the job waits for quota: {'; '.join(waits)}", "Other jobs of the namespace hold it now."
        )
    return ok(f"left of the quota: {', '.join(left) or 'all that jobs use'}")


def _applies(quota: Mapping[str, Any], pods: Sequence[PodSet]) -> bool:
    """Whether a quota counts pods of jobs: those with scopes count only some."""
    spec = quota.get("spec") or {}
    classes = {str(group.spec.get("priorityClassName") or "") for group in pods}
    selectors = (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return not set(spec.get("scopes") or []) & {"Terminating", "BestEffort"} and all(
        one.get("scopeName") != "PriorityClass" or classes & set(one.get("values") or []) for one in selectors
    )


def _wanted(pods: Sequence[PodSet], resource: str) -> Fraction | None:
    """How much of a resource of a quota the job takes; None if its pods state none."""
    if resource in ("pods", "count/pods"):
        return Fraction(sum(group.count for group in pods))
    name, fields = resource.removeprefix("requests."), []
    if resource.startswith("limits."):
        name, fields = resource.removeprefix("limits."), ["limits"]
    amounts = [(group.count, requests_of(group.spec, *fields).get(name)) for group in pods]
    stated = [count * value for count, value in amounts if value is not None]
    return sum(stated, NONE) if stated else None


@dataclass(frozen=True)
class Node:
    """A node, and what it has for pods."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    has: Amounts
    is_ready: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Node:
        spec, status, metadata = found.get("spec") or {}, found.get("status") or {}, found["metadata"]
        ready = [one for one in status.get("conditions") or [] if one.get("type") == "Ready"]
        return cls(
            metadata["name"],
            metadata.get("labels") or {},
            [taint for taint in spec.get("taints") or [] if taint.get("effect") != "PreferNoSchedule"],
            {name: amount(value) for name, value in (status.get("allocatable") or {}).items()},
            not spec.get("unschedulable") and all(one.get("status") == "True" for one in ready),
        )

    def fitting(self, wants: Amounts) -> int:
        """How many pods fit on it when it is empty."""
        counts = [self.has.get(resource, NONE) / each for resource, each in wants.items() if each > 0]
        return max(0, int(min(counts, default=Fraction(10**6))))

    def unsuitable(self, group: PodSet) -> str:
        """Why no pod of the group can ever run there; empty if one can."""
        for key, value in (group.spec.get("nodeSelector") or {}).items():
            if self.labels.get(key) != value:
                return f"no label {key}={value}"
        if not self.is_ready or any(str(taint.get("key")).startswith(CONDITIONS) for taint in self.taints):
            return "not ready, or cordoned"
        for taint in self.taints:
            if not any(_tolerates(toleration, taint) for toleration in group.spec.get("tolerations") or []):
                value = f"={taint['value']}" if taint.get("value") else ""
                return f"the taint {taint.get('key')}{value} is not tolerated"
        for resource, each in requests_of(group.spec).items():
            has = self.has.get(resource, NONE)
            if each > has:
                return f"has {show_quantity(has, resource)} {resource}" if has else f"has no {resource}"
        return ""


def check_devices(cluster: Cluster) -> Finding:
    """The GPUs and other devices of the cluster, by node."""
    texts = [
        f"{node.name}: {count} {resource}"
        for node in map(Node.of, cluster.list(NODE))
        for resource, count in node.has.items()
        if not resource.startswith(_PLAIN) and count > 0
    ]
    if not texts:
        return ok("no node has GPUs now", "A cluster that adds nodes may have none until a job asks.")
    return ok(_shortened(texts, "; "))


def check_nodes(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Whether the cluster has nodes for all pods. Whether they are free is for its scheduler to decide."""
    nodes = [Node.of(node) for node in cluster.list(NODE)]
    for group in pods:
        shown, total = _shown(group), 0
        reasons: dict[str, list[str]] = {}
        for node in nodes:
            if reason := node.unsuitable(group):
                reasons.setdefault(reason, []).append(node.name)
            else:
                total += node.fitting(requests_of(group.spec))
        if total >= group.count:
            continue
        whys = [f"{_shortened(names, ', ')}: {reason}" for reason, names in reasons.items()]
        return warning(
            f"{shown}, and only {total} fit on the nodes"
            if total
            else f"no node is fit for {shown}. {'; '.join(whys) or 'The cluster has no nodes now'}",
            "Such a job waits forever, unless the cluster adds nodes (Karpenter, cluster autoscaler). Check gpus, cpu, "
            "memory, node_selector and tolerations.",
        )
    return ok(f"{' and '.join(map(_shown, pods))} fit on the nodes")


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def _shown(group: PodSet) -> str:
    requests = sorted(requests_of(group.spec).items())
    wants = ", ".join(f"{show_quantity(each, name)} {name}" for name, each in requests if each)
    return f"{group.count} pod{'s' * (group.count != 1)}{f' with {wants}' if wants else ''}"


def _shortened(texts: Sequence[str], separator: str) -> str:
    rest = f"{separator}and {len(texts) - MOST_NAMES} more" if len(texts) > MOST_NAMES else ""
    return separator.join(texts[:MOST_NAMES]) + rest
