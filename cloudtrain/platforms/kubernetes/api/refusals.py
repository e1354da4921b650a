"""Refusals of quotas, webhooks and policies, as sentences."""

from __future__ import annotations

import re

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>\S+), requested: (?P<asked>.+), used: (?P<used>.+), limited: (?P<limit>.+)$"
)
_NEEDS = re.compile(r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)$")
_WEBHOOK = re.compile(
    r'admission webhook "(?P<name>[^"]+)" denied the request(?: without explanation|: (?P<why>.+))?$'
)
_POLICY = re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)' .*denied request: (?P<why>.+)$")
_POD_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.+)$')
_ACCOUNT = re.compile(r"serviceaccount \"(?P<name>[^\"]+)\" not found")
_LIMITS = re.compile(r"forbidden: \[?(?P<what>(?:maximum|minimum) .+ is .+, but .+?)\]?$")


def refusal(message: str, namespace: str = "") -> tuple[str, str] | None:
    """A sentence for a refusal, and what to do; None if ``message`` is none.

    Events of a Job quote the same messages, when the controller cannot make its pods.
    """
    place = f" of the namespace {namespace}" if namespace else ""
    if found := _QUOTA.search(message):
        used, limits = _amounts(found["used"]), _amounts(found["limit"])
        texts = [
            f"{amount} {name} requested, {used.get(name, '0')} of {limits.get(name, '?')} in use"
            for name, amount in _amounts(found["asked"]).items()
        ]
        return (
            f"the quota {found['quota']}{place} is exceeded: {'; '.join(texts)}",
            f"Wait for other jobs, ask for less, or ask for more quota: kubectl describe quota {found['quota']}.",
        )
    if found := _NEEDS.search(message):
        what = ", ".join(part.partition(" for:")[0].strip() for part in found["what"].split(";"))
        return (
            f"the quota {found['quota']}{place} asks every pod to state its {what}",
            "Set them in platform_options: cpu, memory and gpus.",
        )
    if found := _WEBHOOK.search(message):
        why = found["why"] or "it does not say why"
        return (
            f"the admission webhook {found['name']} refuses it: {why}",
            "A rule of this cluster: change the job accordingly, or ask the administrators.",
        )
    if found := _POLICY.search(message):
        return (
            f"the policy {found['name']} refuses it: {found['why']}",
            "A rule of this cluster: change the job accordingly, or ask the administrators.",
        )
    if found := _POD_SECURITY.search(message):
        return (
            f"the namespace {namespace or ''}".rstrip()
            + f" allows only pods of the level {found['level']}: {found['why']}",
            "Run as a user other than root, without added capabilities, or use another namespace.",
        )
    if found := _ACCOUNT.search(message):
        return (
            f"there is no service account {found['name']}{' in the namespace ' + namespace if namespace else ''}",
            "Set platform_options.service_account to one of: kubectl get serviceaccounts.",
        )
    if "because it is being terminated" in message:
        return (
            f"the namespace {namespace} is being deleted",
            "Use another, or wait until it is gone and create it again.",
        )
    if found := _LIMITS.search(message):
        return (
            f"a LimitRange{place} forbids it: {found['what']}",
            "kubectl describe limitrange shows the limits.",
        )
    return None


def _amounts(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): amount for name, _, amount in pairs}
