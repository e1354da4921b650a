"""The nodes of a cluster with GPUs, and how many of the GPUs no pod has requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudtrain.platforms.base import HostOffer
from cloudtrain.platforms.kubernetes.api import kinds
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.doctor.pods import allocatable, requests_of
from cloudtrain.platforms.kubernetes.life.objects import part, text

if TYPE_CHECKING:
    from cloudtrain.platforms.kubernetes.api.client import Api

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
"""The label of NVIDIA's GPU feature discovery with the name of a node's GPU."""
TYPE = "node.kubernetes.io/instance-type"
ALL_PODS = replace(kinds.POD, namespaced=False)


def node_offers(api: Api) -> list[HostOffer]:
    """One offer for each kind of nodes with GPUs. Cordoned nodes are left out.

    Free GPUs are None for users who may not list the pods of all namespaces. Raises KubeError, for example if the user
    may not list nodes.
    """
    used = _requested(api)
    found: dict[tuple[str, str, int], HostOffer] = {}
    for node in api.list(kinds.NODE)[0]:
        gpus = int(allocatable(node).get(GPU, 0))
        if not gpus or part(node, "spec", "unschedulable"):
            continue
        kind, gpu = text(node, "metadata", "labels", TYPE), text(node, "metadata", "labels", PRODUCT)
        free = None if used is None else max(gpus - used.get(text(node, "metadata", "name"), 0), 0)
        old = found.get((kind, gpu, gpus)) or HostOffer(
            api.namespace, kind, gpu, gpus, 0, None if free is None else 0, api.context
        )
        known = None if free is None or old.free_gpus is None else old.free_gpus + free
        found[kind, gpu, gpus] = replace(old, hosts=(old.hosts or 0) + 1, free_gpus=known)
    return [*found.values()]


def _requested(api: Api) -> dict[str, int] | None:
    """The GPUs that unfinished pods of each node have requested; None if the user may not list them."""
    used: dict[str, int] = {}
    try:
        pods = api.list(ALL_PODS, fields="status.phase!=Succeeded,status.phase!=Failed", keep=_with_node)[0]
    except KubeForbidden:
        return None
    for pod in pods:
        name = text(pod, "spec", "nodeName")
        used[name] = used.get(name, 0) + int(requests_of(pod["spec"]).get(GPU, 0))
    return used


def _with_node(pod: Mapping[str, Any]) -> Any:
    return pod if text(pod, "spec", "nodeName") else None
