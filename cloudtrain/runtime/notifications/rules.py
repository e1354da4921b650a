"""The rules in a job's field ``notify``: which events to send notifications about, and where to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.documents import Fields

EVENTS = ("failed", "completed", "stopped", "preempted", "hanging", "cost")
WITHOUT_COST = EVENTS[:-1]
"""The events of a rule that names none."""
TARGETS = ("command", "webhook", "slack", "email")
"""The kinds of places to send to. A rule has one of them."""
SMTP_PORT = 25
RETRY_SECONDS = 3600.0
"""How long a notification is retried by default."""

HOLD_SECONDS = 5.0
"""How long the hosts of a job are held for the notification of its end, unless a rule has ``retry_for``."""

_REFERENCE = pattern(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_TEXTS = ("webhook", "slack", "secret", "smtp", "user", "password", "sender")


@dataclass(frozen=True)
class Rule:
    """One rule. Its texts may refer to variables, as ``$NAME``: see `resolved`."""

    on: tuple[str, ...] = WITHOUT_COST
    command: tuple[str, ...] = ()
    webhook: str = ""
    secret: str = ""
    """The key that signs the requests to ``webhook``."""
    slack: str = ""
    email: tuple[str, ...] = ()
    smtp: str = f"localhost:{SMTP_PORT}"
    user: str = ""
    password: str = ""
    sender: str = ""
    cost_above: float = 0.0
    price_per_hour: float = 0.0
    """The price of an hour of one host."""
    retry_for: float = RETRY_SECONDS
    """How long a notification is retried, in seconds."""
    holds: bool = False
    """Whether the rule specifies ``retry_for``. If so, an allocation is held for up to this time."""

    @property
    def kind(self) -> str:
        return next(name for name in TARGETS if getattr(self, name))

    @property
    def variables(self) -> list[str]:
        """The names of the variables that the rule refers to."""
        texts = [*(getattr(self, name) for name in _TEXTS), *self.email]
        return sorted({found for text in texts for found in references(text)})

    def resolved(self, environ: Mapping[str, str]) -> Rule:
        """The rule with the values of its variables. Raises LookupError with the name of one that is missing."""
        missing = [name for name in self.variables if not environ.get(name)]
        if missing:
            raise LookupError(f"the variable {missing[0]} is not set")

        def fill(text: str) -> str:
            return _REFERENCE.sub(lambda match: environ[match[1] or match[2]], text)

        texts: dict[str, Any] = {name: fill(getattr(self, name)) for name in _TEXTS}
        return replace(self, **texts, email=tuple(map(fill, self.email)))

    @classmethod
    def from_dict(cls, record: object) -> Rule:
        """The rule in the format of a request. Raises ValueError with the name of the field."""
        given = Fields(record)
        cost_above = given.number("cost_above", 0.0, least=0)
        on = given.texts("on", ()) or (*WITHOUT_COST, *(("cost",) if cost_above else ()))
        rule = cls(
            on=on,
            command=given.texts("command", ()),
            email=given.texts("email", ()),
            smtp=given.text("smtp", cls.smtp),
            cost_above=cost_above,
            price_per_hour=given.number("price_per_hour", 0.0, least=0),
            retry_for=given.number("retry_for", RETRY_SECONDS, least=0),
            holds="retry_for" in given,
            **{name: given.text(name, "") for name in _TEXTS if name != "smtp"},
        )
        if not any(getattr(rule, name) for name in TARGETS):
            raise ValueError(f"it has none of {', '.join(TARGETS)}")
        return rule


def rules_of(body: Mapping[str, Any]) -> list[Rule]:
    """The rules in the body of a request; none if one cannot be read, as it may be of a newer version."""
    try:
        return [Rule.from_dict(record) for record in body.get("notify", ())]
    except (ValueError, TypeError):
        return []


def smtp_address(text: str) -> tuple[str, int]:
    """The host and the port of a mail server. Raises ValueError for anything else.

    >>> smtp_address("mail.example.com"), smtp_address("[::1]:587")
    (('mail.example.com', 25), ('::1', 587))
    """
    from urllib.parse import urlsplit  # supervisors do without it

    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text or "@" in text:
        raise ValueError(f"{text} is not a mail server")
    return parts.hostname, parts.port or SMTP_PORT


def hold_seconds(rules: Sequence[Rule]) -> float:
    """How long the hosts of a job may be held at its end until its notifications have arrived."""
    return max([HOLD_SECONDS, *(rule.retry_for for rule in rules if rule.holds)])


def references(text: str) -> list[str]:
    """The names of the variables that ``text`` refers to.

    >>> references("https://$HOST/${TOKEN}/$5")
    ['HOST', 'TOKEN']
    """
    return [match[1] or match[2] for match in _REFERENCE.finditer(text)]


def own_variables(rules: Sequence[Rule], others: Sequence[str]) -> list[str]:
    """The variables that only the rules need, so that the script does not get them. It gets ``others``."""
    return sorted({name for rule in rules for name in rule.variables} - {*others})
