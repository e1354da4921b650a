"""Checks of what pods request against the quotas and limits of the namespace, and against the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cloudtrain.platforms.checks import Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden, KubeTooLarge
from cloudtrain.platforms.kubernetes.api.kinds import LIMIT_RANGE, NODE, POD, RESOURCE_QUOTA
from cloudtrain.platforms.kubernetes.doctor.cluster import Cluster, PodSet, failed, ok, warning
from cloudtrain.platforms.kubernetes.quantities import parse_quantity, show_quantity

Amounts = Mapping[str, Fraction]

NONE = Fraction(0)
COUNTED = ("cpu", "memory", "ephemeral-storage")
MOST_NAMES = 6
CONDITIONS = "node.kubernetes.io/"
"""The beginning of the taints by which Kubernetes reports that a node is not ready, or short of something."""
_PLAIN = (*COUNTED, "pods", "hugepages-", "attachable-volumes")


def amount(value: object) -> Fraction:
    """The number that a quantity is; 0 for what is not a quantity."""
    return parse_quantity(value) or NONE


def requests_of(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """The requests of all containers of a pod together; a limit alone is a request, too."""
    return _total(spec, "limits", "requests")


def limits_of(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """The limits of a pod's containers together."""
    return _total(spec, "limits")


def _total(spec: Mapping[str, Any], *fields: str) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for container in spec.get("containers") or []:
        given = container.get("resources") or {}
        merged: dict[str, Any] = {}
        for field in fields:
            merged.update(given.get(field) or {})
        for name, value in merged.items():
            total[name] = total.get(name, NONE) + amount(value)
    return total


def check_quota(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Every ResourceQuota of the namespace. Without pods: what is left of them."""
    quotas = [quota for quota in cluster.list(RESOURCE_QUOTA) if _applies(quota, pods)]
    if not quotas:
        return ok("the namespace has no quota that applies")
    never, waits, unstated, left = [], [], [], []
    defaults = _defaults(cluster) if pods else None
    for quota in quotas:
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        for resource, limit in hard.items():
            wanted = _wanted(pods, resource)
            if wanted is None:
                must_state = resource.startswith("limits.") or resource.removeprefix("requests.") in COUNTED
                if defaults is not None and resource not in defaults and must_state:
                    unstated.append(f"{name} counts {resource}")
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
    if unstated:
        return failed(
            f"the quota {', '.join(dict.fromkeys(unstated))}, and the pods state no such amount: none would be created",
            "Set platform_options.cpu and memory; a limit of cpu through platform_options.pod_patch.",
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
    of, name = requests_of, resource.removeprefix("requests.")
    if resource.startswith("limits."):
        of, name = limits_of, resource.removeprefix("limits.")
    amounts = [(group.count, of(group.spec).get(name)) for group in pods]
    stated = [count * value for count, value in amounts if value is not None]
    return sum(stated, NONE) if stated else None


def _limits(cluster: Cluster) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The limits of every LimitRange, with its name."""
    for limit_range in cluster.list(LIMIT_RANGE):
        for limit in (limit_range.get("spec") or {}).get("limits") or []:
            yield limit_range["metadata"]["name"], limit


def _defaults(cluster: Cluster) -> set[str] | None:
    """The resources of quotas for which a LimitRange fills in an amount; None if the user may not see them."""
    found: set[str] = set()
    try:
        containers = [limit for _, limit in _limits(cluster) if limit.get("type") == "Container"]
    except KubeForbidden:
        return None
    for limit in containers:
        for resource in {**(limit.get("default") or {}), **(limit.get("max") or {})}:
            found |= {f"limits.{resource}", f"requests.{resource}", resource}
        for resource in limit.get("defaultRequest") or {}:
            found |= {f"requests.{resource}", resource}
    return found


def check_limits(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Every LimitRange of the namespace."""
    broken = [
        f"{name}: {problem}"
        for name, limit in _limits(cluster)
        for group in pods
        for problem in _problems(limit, group)
    ]
    if broken:
        return failed(
            f"a LimitRange forbids the pods: {'; '.join(dict.fromkeys(broken))}",
            "Change platform_options.cpu, memory or disk.",
        )
    return ok("no LimitRange is in the way")


def _problems(limit: Mapping[str, Any], group: PodSet) -> Iterator[str]:
    kind = limit.get("type")
    containers: list[Mapping[str, Any]] = [{"containers": [one]} for one in group.containers]
    for target in {"Container": containers, "Pod": [group.spec]}.get(str(kind), []):
        requests, limits = requests_of(target), limits_of(target)
        for resource, most in (limit.get("max") or {}).items():
            wanted = max(requests.get(resource, NONE), limits.get(resource, NONE))
            if wanted > amount(most):
                yield f"{show_quantity(wanted, resource)} {resource}, at most {most} for each {kind}"
        for resource, least in (limit.get("min") or {}).items():
            if resource in requests and requests[resource] < amount(least):
                yield f"{show_quantity(requests[resource], resource)} {resource}, at least {least} for each {kind}"


@dataclass(frozen=True)
class Node:
    """A node: what it has, and what pods have taken of it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    has: Amounts
    taken: Amounts | None
    """None if the user may not see the pods of other namespaces."""
    is_ready: bool

    @classmethod
    def of(cls, found: Mapping[str, Any], taken: Mapping[str, Amounts] | None) -> Node:
        spec, status, metadata = found.get("spec") or {}, found.get("status") or {}, found["metadata"]
        ready = [one for one in status.get("conditions") or [] if one.get("type") == "Ready"]
        return cls(
            metadata["name"],
            metadata.get("labels") or {},
            [taint for taint in spec.get("taints") or [] if taint.get("effect") != "PreferNoSchedule"],
            {name: amount(value) for name, value in (status.get("allocatable") or {}).items()},
            None if taken is None else taken.get(metadata["name"], {}),
            not spec.get("unschedulable") and all(one.get("status") == "True" for one in ready),
        )

    def fitting(self, wants: Amounts, *, free: bool) -> int:
        """How many pods fit on it: when it is empty, or next to those that it has."""
        taken = (self.taken if free else None) or {}
        counts = [
            (self.has.get(resource, NONE) - taken.get(resource, NONE)) / each
            for resource, each in wants.items()
            if each > 0
        ]
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
    texts = []
    for node in nodes_of(cluster):
        for resource, count in node.has.items():
            if not resource.startswith(_PLAIN) and count > 0:
                free, word = "", ""
                if node.taken is not None:
                    free, word = f"{count - node.taken.get(resource, NONE)} of ", " free"
                texts.append(f"{node.name}: {free}{count} {resource}{word}")
    if not texts:
        return ok("no node has GPUs now", "A cluster that adds nodes may have none until a job asks.")
    return ok(_shortened(texts, "; "))


def check_nodes(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Whether all pods fit on the nodes, and whether they do now."""
    nodes, must_wait = nodes_of(cluster), False
    for group in pods:
        wants, shown = requests_of(group.spec), _shown(group)
        reasons: dict[str, list[str]] = {}
        total = free = 0
        for node in nodes:
            if reason := node.unsuitable(group):
                reasons.setdefault(reason, []).append(node.name)
            else:
                total += node.fitting(wants, free=False)
                free += node.fitting(wants, free=True)
        must_wait = must_wait or free < group.count
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
    shown = " and ".join(map(_shown, pods))
    if any(node.taken is None for node in nodes):
        return ok(f"{shown} fit on the nodes; whether they are free, you may not see")
    if must_wait:
        return warning(
            f"{shown} fit on the nodes, but not next to what runs there now",
            "The job waits until others end. Without a gang (platform_options.queue or gang), it may hold some nodes "
            "meanwhile.",
        )
    return ok(f"{shown} fit, and the nodes are free now")


def nodes_of(cluster: Cluster) -> list[Node]:
    """All nodes. Raises KubeError."""
    taken: dict[str, dict[str, Fraction]] = {}
    try:
        running = "status.phase!=Succeeded,status.phase!=Failed"
        found, _ = cluster.api.list(POD, fields=running, all_namespaces=True, keep=_requests)
    except (KubeForbidden, KubeTooLarge):
        return [Node.of(node, None) for node in cluster.list(NODE)]
    for pod in found:
        of_node = taken.setdefault(pod["node"], {})
        for resource, each in pod["requests"].items():
            of_node[resource] = of_node.get(resource, NONE) + each
    return [Node.of(node, taken) for node in cluster.list(NODE)]


def _requests(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a pod that counts: clusters have 100,000."""
    spec = pod.get("spec") or {}
    return {"node": str(spec.get("nodeName")), "requests": requests_of(spec)}


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
