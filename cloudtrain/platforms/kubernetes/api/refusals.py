"""Explains why a cluster rejects an object, which a client or a controller creates: quotas, webhooks and policies.

The texts are those of Kubernetes 1.20 to 1.37. `first_match` turns messages into sentences, also for `life.reasons`;
`parse_quantity` reads amounts in Kubernetes' notation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<unit>[KMGTPE]i|[numkMGTPE])|[eE](?P<power>[+-]?\d{1,2}))?"
)
_SCALE = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Fraction(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
LONGEST = 40
"""The maximum length of a quantity in characters. Any number up to this length is a finite float."""
_BYTES = ("memory", "storage", "hugepages")


def parse_quantity(given: object) -> Fraction | None:
    """The value of a quantity of the API: ``500m`` is 1/2, ``1Ki`` is 1024; None for any other text.

    >>> parse_quantity("1953125Ki")
    Fraction(2000000000, 1)
    """
    text = str(given).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > LONGEST:
        return None
    scale = Fraction(10) ** int(match["power"]) if match["power"] else _SCALE[match["unit"] or ""]
    return Fraction(match["number"]) * scale


def show_quantity(value: Fraction, resource: str) -> str:
    """An amount in readable form: bytes in GiB or MiB, anything else as a number.

    >>> show_quantity(Fraction(2000000000), "memory"), show_quantity(Fraction(1, 2), "cpu")
    ('1.9 GiB', '0.5')
    """
    if not any(word in resource for word in _BYTES):
        return f"{float(value):.6g}"
    unit, size = ("GiB", 2**30) if abs(value) >= 2**30 else ("MiB", 2**20)
    return f"{float(value / size):.1f}".removesuffix(".0") + f" {unit}"


CONFIGURATION_SECONDS = 180.0
"""How long an error that needs a repair may last while a client waits: it may be repaired in this time."""


@dataclass(frozen=True)
class Why:
    """Why a job waits: a sentence, advice, and how long the cause may last."""

    sentence: str
    advice: str = ""
    patience: float | None = None
    """Seconds after which a job that still waits is given up; None: never."""
    since: float | None = None
    """When it began, in seconds since the epoch; None if unknown."""

    def __str__(self) -> str:
        return f"{self.sentence.rstrip('.')}. {self.advice}" if self.advice else self.sentence

    @property
    def is_error(self) -> bool:
        """Whether it may need a repair."""
        return self.patience is not None

    def is_hopeless(self, now: float) -> bool:
        """Whether it has lasted for longer than `patience`."""
        return self.patience is not None and self.since is not None and now - self.since > self.patience


class Rule(NamedTuple):
    """A pattern of messages, with a sentence and advice that may contain its groups, and the patience."""

    pattern: str
    sentence: str
    advice: str = ""
    patience: float | None = None


Rules = Sequence[Rule]


def first_match(rules: Rules, words: str, **facts: str) -> Why | None:
    """The sentence of the first rule whose pattern occurs in ``words``; None if there is none."""
    for pattern, sentence, advice, patience in rules:
        if found := re.search(pattern, words, re.IGNORECASE | re.DOTALL):
            given = {**facts, "reported": words, **found.groupdict("it gives no reason")}
            return Why(sentence.format(**given).strip(), advice.format(**given), patience)
    return None


_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.+?), used: (?P<used>.+?), limited: (?P<limit>.+)"
)
_RULE = "A rule of this cluster: change the job accordingly, or ask the administrators."
_REFUSALS: Rules = (
    Rule(
        r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)",
        "the quota {quota} of the namespace requires every pod to specify {what}",
        "Set them in platform_options: cpu, memory and gpus.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r'admission webhook "(?P<name>[^"]+)" denied the request(?: without explanation|:\s*(?P<why>.*?))?\s*\Z',
        "the admission webhook {name} refuses it: {why}",
        _RULE,
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"ValidatingAdmissionPolicy '(?P<name>[^']+)' .*denied request: (?P<why>.+)",
        "the policy {name} refuses it: {why}",
        _RULE,
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r'violates PodSecurity "(?P<level>[^"]+)": (?P<why>.+)',
        "the namespace enforces the Pod Security Standard {level}: {why}",
        "Set platform_options.run_as_user, capabilities or pod_patch, or use another namespace.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r'serviceaccount "(?P<name>[^"]+)" not found',
        "the service account {name} does not exist in the namespace",
        "Create it, or set another platform_options.service_account: kubectl get serviceaccounts.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"no PriorityClass with name (?P<name>\S+) was found",
        "the priority class {name} does not exist",
        "See those of the cluster: kubectl get priorityclasses.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"because it is being terminated",
        "the namespace is being deleted",
        "Use another, or wait until it is gone and create it again.",
        CONFIGURATION_SECONDS,
    ),
    Rule(
        r"(?P<what>(?:maximum|minimum) \S+ usage per (?:Pod|Container) is .+?)\]*\Z",
        "a LimitRange of the namespace forbids it: {what}",
        "See the limits with: kubectl describe limitrange.",
        CONFIGURATION_SECONDS,
    ),
)


def refusal(message: str) -> Why | None:
    """The refusal that ``message`` reports; None if it reports another error."""
    if found := _QUOTA.search(message):
        return _over_quota(found["quota"], *(_amounts(found[name]) for name in ("asked", "used", "limit")))
    if "failed quota" in message and "must specify" in message:  # quotas name the containers, too
        message = re.sub(r"\s+for: [^;]+(; )?", r"\1", message).replace("; ", ", ")
    return first_match(_REFUSALS, message)


def _over_quota(quota: str, asked: dict[str, str], used: dict[str, str], limit: dict[str, str]) -> Why:
    shown = "; ".join(
        f"{amount} {name} requested, {used.get(name, '0')} of {limit.get(name, '?')} in use"
        for name, amount in asked.items()
    )
    pairs = [(parse_quantity(amount), parse_quantity(limit.get(name, ""))) for name, amount in asked.items()]
    if any(needed is not None and most is not None and needed > most for needed, most in pairs):
        return Why(
            f"it requests more than the quota {quota} of the namespace ever allows: {shown}",
            f"Request less for each host. See it with: kubectl describe quota {quota}.",
            CONFIGURATION_SECONDS,
        )
    return Why(
        f"the quota {quota} of the namespace is exceeded: {shown}",
        f"It starts when other jobs of the namespace end. See it with: kubectl describe quota {quota}.",
    )


def _amounts(text: str) -> dict[str, str]:
    """The values of ``a=1,b=2`` by name."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): amount for name, _, amount in pairs}
