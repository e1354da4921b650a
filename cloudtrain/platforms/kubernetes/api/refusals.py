"""Why a cluster refuses an object: quotas, webhooks and policies, whether a client or a controller creates it.

The texts are those of Kubernetes 1.20 to 1.37.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cloudtrain.platforms.kubernetes.quantities import parse_quantity

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.+?), used: (?P<used>.+?), limited: (?P<limit>.+)"
)
_RULE = "A rule of this cluster: change the job accordingly, or ask the administrators."
_RULES = (
    (
        r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)",
        "the quota {quota} of the namespace requires every pod to specify {what}",
        "Set them in platform_options: cpu, memory and gpus.",
    ),
    (
        r'admission webhook "(?P<name>[^"]+)" denied the request(?: without explanation|:\s*(?P<why>.*?))?\s*\Z',
        "the admission webhook {name} refuses it: {why}",
        _RULE,
    ),
    (
        r"ValidatingAdmissionPolicy '(?P<name>[^']+)' .*denied request: (?P<why>.+)",
        "the policy {name} refuses it: {why}",
        _RULE,
    ),
    (
        r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.+)',
        "the namespace enforces the Pod Security Standard {level}: {why}",
        "Set platform_options.run_as_user, capabilities or pod_patch, or use another namespace.",
    ),
    (
        r'serviceaccount "(?P<name>[^"]+)" not found',
        "the service account {name} does not exist in the namespace",
        "Create it, or set another platform_options.service_account: kubectl get serviceaccounts.",
    ),
    (
        r"no PriorityClass with name (?P<name>\S+) was found",
        "the priority class {name} does not exist",
        "See those of the cluster: kubectl get priorityclasses.",
    ),
    (
        r"because it is being terminated",
        "the namespace is being deleted",
        "Use another, or wait until it is gone and create it again.",
    ),
    (
        r"(?P<what>(?:maximum|minimum) \S+ usage per (?:Pod|Container) is .+?)\]*\Z",
        "a LimitRange of the namespace forbids it: {what}",
        "See the limits with: kubectl describe limitrange.",
    ),
)
"""Patterns with their sentences, and what to do."""


class Refusal(NamedTuple):
    """A sentence for a refusal, and what to do."""

    sentence: str
    advice: str
    lasts: bool = True
    """Whether the cluster refuses the same object again, unless someone changes something."""


def refusal(message: str) -> Refusal | None:
    """The refusal that ``message`` reports; None if it reports another error."""
    if found := _QUOTA.search(message):
        return _over_quota(found["quota"], *(_amounts(found[name]) for name in ("asked", "used", "limit")))
    for pattern, sentence, advice in _RULES:
        if found := re.search(pattern, message, re.DOTALL):
            facts = found.groupdict("it gives no reason")
            if "what" in facts:  # quotas name the containers, too
                facts["what"] = re.sub(r"\s+for: [^;]+(; )?", r"\1", facts["what"]).replace("; ", ", ")
            return Refusal(sentence.format(**facts), advice)
    return None


def _over_quota(quota: str, asked: dict[str, str], used: dict[str, str], limit: dict[str, str]) -> Refusal:
    shown = "; ".join(
        f"{amount} {name} requested, {used.get(name, '0')} of {limit.get(name, '?')} in use"
        for name, amount in asked.items()
    )
    pairs = [(parse_quantity(amount), parse_quantity(limit.get(name, ""))) for name, amount in asked.items()]
    if any(needed is not None and most is not None and needed > most for needed, most in pairs):
        return Refusal(
            f"it asks for more than the quota {quota} of the namespace ever allows: {shown}",
            f"Ask for less for each host. See it with: kubectl describe quota {quota}.",
        )
    return Refusal(
        f"the quota {quota} of the namespace is exceeded: {shown}",
        f"It starts when other jobs of the namespace end. See it with: kubectl describe quota {quota}.",
        lasts=False,
    )


def _amounts(text: str) -> dict[str, str]:
    """``a=1,b=2`` by name."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): amount for name, _, amount in pairs}
