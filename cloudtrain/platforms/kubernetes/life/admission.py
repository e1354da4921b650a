"""Why the pods of a job are not created: what the API server answers to the controller, as sentences."""

from __future__ import annotations

import re

from cloudtrain.platforms.kubernetes.life.why import CONFIGURATION_SECONDS, Why
from cloudtrain.platforms.kubernetes.quantities import parse_quantity

CREATE_ERRORS = {"FailedCreate", "JobCreationFailed", "HeadlessServiceCreationFailed", "MPIJobFailed"}
"""Reasons of events of controllers that could not create a pod."""

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.+?), used: (?P<used>.+?), limited: (?P<limit>.+)"
)
_MUST = re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)")
_ACCOUNT = re.compile(r'serviceaccount "(?P<name>[^"]+)" not found')
_PRIORITY = re.compile(r"no PriorityClass with name (?P<name>\S+) was found")
_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<what>.+)', re.DOTALL)
_WEBHOOK = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request:? ?(?P<said>.*)', re.DOTALL)
_RANGE = re.compile(r"(?:maximum|minimum) \S+ usage per (?:Pod|Container) is .+", re.DOTALL)
_FORBIDDEN = re.compile(
    r"(?:Error creating: )?(?:pods|jobs\.batch) \"[^\"]*\" is forbidden: (?P<said>.*)", re.DOTALL
)

_SEE_QUOTA = "See it with: kubectl describe quota"


def why_not_created(message: str) -> Why:
    """The sentence for an event of a controller that could not create a pod."""
    match = _FORBIDDEN.fullmatch(message.strip())
    said = (match["said"] if match else message.strip().removeprefix("Error creating: ")).strip()
    if quota := _QUOTA.search(said):
        return _over_quota(quota["quota"], *(_amounts(quota[part]) for part in ("asked", "used", "limit")))
    if must := _MUST.search(said):
        return Why(
            f"the quota {must['quota']} requires every pod to specify {must['what']}",
            "Specify it in platform_options.",
            CONFIGURATION_SECONDS,
        )
    if account := _ACCOUNT.search(said):
        return Why(
            f"the service account {account['name']} does not exist in its namespace",
            "Create it, or set another platform_options.service_account.",
            CONFIGURATION_SECONDS,
        )
    if priority := _PRIORITY.search(said):
        return Why(
            f"the priority class {priority['name']} does not exist",
            "See those of the cluster: kubectl get priorityclasses",
            CONFIGURATION_SECONDS,
        )
    if security := _SECURITY.search(said):
        return Why(
            f"the namespace enforces the Pod Security Standard {security['level']}, which its pods violate: "
            f"{security['what']}",
            "Set platform_options.run_as_user, capabilities or pod_patch, or use another namespace.",
            CONFIGURATION_SECONDS,
        )
    if webhook := _WEBHOOK.search(said):
        return Why(
            f"the admission webhook {webhook['name']} of the cluster refuses its pods: {webhook['said'].strip()}",
            "",
            CONFIGURATION_SECONDS,
        )
    if allowed := _RANGE.search(said):
        return Why(
            f"its pods are outside the limits of the namespace: {allowed[0].rstrip(']')}",
            "See them with: kubectl describe limitrange",
            CONFIGURATION_SECONDS,
        )
    if match:
        return Why(f"the cluster refuses its pods: {said}", "", CONFIGURATION_SECONDS)
    return Why(f"its pods could not be created: {said}", "The controller tries again.")


def _amounts(given: str) -> dict[str, str]:
    """``a=1,b=2`` by name."""
    return dict(one.split("=", 1) for one in given.split(",") if "=" in one)


def _over_quota(quota: str, asked: dict[str, str], used: dict[str, str], limit: dict[str, str]) -> Why:
    shown = ", ".join(
        f"{name}{'' if name.endswith('pods') else f' {asked[name]} for a pod'}, {used.get(name, '?')} of "
        f"{limit.get(name, '?')} in use"
        for name in asked
    )
    never = [
        name
        for name in asked
        if (most := parse_quantity(limit.get(name, ""))) is not None
        and (needed := parse_quantity(asked[name])) is not None
        and needed > most
    ]
    if never:
        return Why(
            f"one pod asks for more than the quota {quota} of the namespace ever allows: {shown}",
            f"Ask for less for each host. {_SEE_QUOTA}",
            CONFIGURATION_SECONDS,
        )
    return Why(
        f"the quota {quota} of the namespace is exceeded: {shown}",
        f"It starts when other pods of the namespace end. {_SEE_QUOTA}",
    )
