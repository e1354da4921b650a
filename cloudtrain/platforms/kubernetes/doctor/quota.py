"""Checks of the quotas and limits of the namespace, against what the job asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from cloudtrain.platforms.checks import CheckStatus, Finding
from cloudtrain.platforms.kubernetes.api.errors import KubeForbidden
from cloudtrain.platforms.kubernetes.api.kinds import LIMIT_RANGE, RESOURCE_QUOTA
from cloudtrain.platforms.kubernetes.doctor.amounts import amount, limits_of, requests_of
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet
from cloudtrain.platforms.kubernetes.quantities import show_quantity

COUNTED = ("cpu", "memory", "ephemeral-storage")


def check_quota(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Every ResourceQuota of the namespace. Without pods: what is left of them."""
    quotas = [quota for quota in cluster.list(RESOURCE_QUOTA) if _applies(quota, pods)]
    if not quotas:
        return Finding(CheckStatus.OK, "the namespace has no quota that applies")
    never, waits, unstated, left = [], [], [], []
    defaults = _defaults(cluster) if pods else None
    for quota in quotas:
        name, status = quota["metadata"]["name"], quota.get("status") or {}
        hard = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        for resource, limit in hard.items():
            used = amount((status.get("used") or {}).get(resource, 0))
            wanted = _wanted(pods, resource)
            if wanted is None:
                is_stated = resource.removeprefix("requests.") not in COUNTED and not resource.startswith(
                    "limits."
                )
                if defaults is not None and resource not in defaults and not is_stated:
                    unstated.append(f"{name} counts {resource}")
                continue
            text = (
                f"{name}: {show_quantity(wanted, resource)} {resource}, {show_quantity(used, resource)} of "
            )
            text += f"{show_quantity(amount(limit), resource)} in use"
            if wanted > amount(limit):
                never.append(text)
            elif wanted + used > amount(limit):
                waits.append(text)
            left.append(f"{name}: {show_quantity(amount(limit) - used, resource)} {resource}")
    if never:
        return Finding(
            CheckStatus.FAILED,
            f"the job asks for more than its quota: {'; '.join(never)}",
            "Ask for less, or for more quota.",
        )
    if unstated:
        return Finding(
            CheckStatus.FAILED,
            f"the quota {', '.join(dict.fromkeys(unstated))}, and the pods state no such amount: none would be created",
            "Set platform_options.cpu and memory; a limit of cpu through platform_options.pod_patch.",
        )
    if waits:
        return Finding(
            CheckStatus.WARNING,
            f"the job waits for quota: {'; '.join(waits)}",
            "Other jobs of the namespace hold it now.",
        )
    return Finding(CheckStatus.OK, f"left of the quota: {', '.join(left) or 'all that jobs use'}")


def check_limits(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Every LimitRange of the namespace."""
    broken = []
    for limit_range in cluster.list(LIMIT_RANGE):
        name = limit_range["metadata"]["name"]
        for limit in (limit_range.get("spec") or {}).get("limits") or []:
            for group in pods:
                broken += [f"{name}: {problem}" for problem in _problems(limit, group.spec)]
    if broken:
        return Finding(
            CheckStatus.FAILED,
            f"a LimitRange forbids the pods: {'; '.join(dict.fromkeys(broken))}",
            "Change platform_options.cpu, memory or disk.",
        )
    return Finding(CheckStatus.OK, "no LimitRange is in the way")


def _problems(limit: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    kind = limit.get("type")
    if kind == "Container":
        targets: list[Mapping[str, Any]] = [{"containers": [one]} for one in spec.get("containers") or []]
    elif kind == "Pod":
        targets = [spec]
    else:
        return
    for target in targets:
        requests, limits = requests_of(target), limits_of(target)
        for resource, most in (limit.get("max") or {}).items():
            asked = max(requests.get(resource, Fraction(0)), limits.get(resource, Fraction(0)))
            if asked > amount(most):
                yield f"{show_quantity(asked, resource)} {resource}, at most {most} for each {kind}"
        for resource, least in (limit.get("min") or {}).items():
            if resource in requests and requests[resource] < amount(least):
                yield f"{show_quantity(requests[resource], resource)} {resource}, at least {least} for each {kind}"


def _applies(quota: Mapping[str, Any], pods: Sequence[PodSet]) -> bool:
    """Whether a quota counts pods of jobs: those with scopes count only some."""
    spec = quota.get("spec") or {}
    if set(spec.get("scopes") or []) & {"Terminating", "BestEffort"}:
        return False
    for selector in (spec.get("scopeSelector") or {}).get("matchExpressions") or []:
        classes = {str(group.spec.get("priorityClassName") or "") for group in pods}
        if selector.get("scopeName") == "PriorityClass" and not classes & set(selector.get("values") or []):
            return False
    return True


def _wanted(pods: Sequence[PodSet], resource: str) -> Fraction | None:
    """How much of a resource of a quota the job takes; None if its pods state none."""
    if resource in ("pods", "count/pods"):
        return Fraction(sum(group.count for group in pods))
    if resource.startswith("limits."):
        amounts = [
            (group.count, limits_of(group.spec).get(resource.removeprefix("limits."))) for group in pods
        ]
    else:
        amounts = [
            (group.count, requests_of(group.spec).get(resource.removeprefix("requests."))) for group in pods
        ]
    stated = [count * value for count, value in amounts if value is not None]
    return sum(stated, Fraction(0)) if stated else None


def _defaults(cluster: Cluster) -> set[str] | None:
    """The resources of quotas for which a LimitRange fills in an amount; None if the user may not see them."""
    found: set[str] = set()
    try:
        limit_ranges = cluster.list(LIMIT_RANGE)
    except KubeForbidden:
        return None
    for limit_range in limit_ranges:
        for limit in (limit_range.get("spec") or {}).get("limits") or []:
            if limit.get("type") == "Container":
                for resource in {**(limit.get("default") or {}), **(limit.get("max") or {})}:
                    found |= {f"limits.{resource}", f"requests.{resource}", resource}
                for resource in limit.get("defaultRequest") or {}:
                    found |= {f"requests.{resource}", resource}
    return found
