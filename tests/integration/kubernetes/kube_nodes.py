"""The nodes of a test's cluster, and the scheduler that puts pods on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kube_volumes import quantity

Object = dict[str, Any]


@dataclass
class Node:
    name: str
    resources: dict[str, str] = field(default_factory=lambda: {"cpu": "32", "memory": "128Gi"})
    """Resources that pods may request, such as ``nvidia.com/gpu``."""
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    up: bool = True

    def to_object(self, kubelet_port: int) -> tuple[Object, Object]:
        """The object of the API, and its status."""
        body = {
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self.labels}},
            "spec": {"taints": self.taints},
        }
        amounts = {"pods": "110", "ephemeral-storage": "100Gi", **self.resources}
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "v1.31.0",
                **dict.fromkeys(
                    (
                        "bootID",
                        "containerRuntimeVersion",
                        "kernelVersion",
                        "kubeProxyVersion",
                        "machineID",
                        "osImage",
                        "systemUUID",
                    ),
                    "",
                ),
            },
        }
        return body, status


def choose_node(pod: Object, nodes: list[Node], pods: list[Object]) -> tuple[Node | None, str]:
    """The node with enough resources and the fewest pods; otherwise the sentence of a FailedScheduling event.

    Args:
        pods: those that are on nodes and have not ended.
    """
    wanted = requests_of(pod)
    load = Counter(other["spec"].get("nodeName") for other in pods)
    problems: Counter[str] = Counter()
    for node in sorted(nodes, key=lambda node: load[node.name]):
        used: Counter[str] = Counter()
        for other in pods:
            if other["spec"].get("nodeName") == node.name:
                used.update(requests_of(other))
        found = _problems(pod, node, wanted, used)
        if not found:
            return node, ""
        problems.update(found)
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(problems.items()))
    return None, f"0/{len(nodes)} nodes are available: {reasons}."


def requests_of(pod: Object) -> Counter[str]:
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[name] += quantity(amount)  # type: ignore[assignment]
    return total


def _problems(pod: Object, node: Node, wanted: Counter[str], used: Counter[str]) -> list[str]:
    spec = pod["spec"]
    if not node.up:
        return ["node(s) had untolerated taint {node.kubernetes.io/unreachable: }"]
    for taint in node.taints:
        if taint["effect"] != "PreferNoSchedule" and not any(
            _tolerates(one, taint) for one in spec.get("tolerations") or ()
        ):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    labels = {"kubernetes.io/hostname": node.name, **node.labels}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return ["node(s) didn't match Pod's node affinity/selector"]
    return [
        f"Insufficient {name}"
        for name, amount in wanted.items()
        if amount + used[name] > quantity(node.resources.get(name, 0))
    ]


def _tolerates(toleration: Object, taint: dict[str, str]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
