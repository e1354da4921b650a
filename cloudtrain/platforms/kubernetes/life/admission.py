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
_REFUSALS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)"),
        "the quota {quota} requires every pod to specify {what}",
        "Specify it in platform_options.",
    ),
    (
        re.compile(r'serviceaccount "(?P<name>[^"]+)" not found'),
        "the service account {name} does not exist in its namespace",
        "Create it, or set another platform_options.service_account.",
    ),
    (
        re.compile(r"no PriorityClass with name (?P<name>\S+) was found"),
        "the priority class {name} does not exist",
        "See those of the cluster: kubectl get priorityclasses",
    ),
    (
        re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<what>.+)', re.DOTALL),
        "the namespace enforces the Pod Security Standard {level}, which its pods violate: {what}",
        "Set platform_options.run_as_user, capabilities or pod_patch, or use another namespace.",
    ),
    (
        re.compile(
            r'admission webhook "(?P<name>[^"]+)" denied the request:?\s*(?P<said>.*?)\s*\Z', re.DOTALL
        ),
        "the admission webhook {name} of the cluster refuses its pods: {said}",
        "",
    ),
    (
        re.compile(r"(?P<limit>(?:maximum|minimum) \S+ usage per (?:Pod|Container) is .+?)\]*\Z", re.DOTALL),
        "its pods are outside the limits of the namespace: {limit}",
        "See them with: kubectl describe limitrange",
    ),
)
"""Patterns of what the API server says, the first one that matches; the sentence; what to do."""
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
    for pattern, sentence, advice in _REFUSALS:
        if found := pattern.search(said):
            return Why(sentence.format(**found.groupdict()), advice, CONFIGURATION_SECONDS)
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
