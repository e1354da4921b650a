"""The field ``notify``: the events of a job about which notifications are sent, and their recipients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from cloudtrain._secrets.formats import has_secret_format
from cloudtrain._secrets.urls import has_credentials
from cloudtrain.errors import InvalidJob
from cloudtrain.spec._exec import check_variable

NotificationEvent = Literal["failed", "completed", "stopped", "preempted", "hanging", "cost"]


class NotifyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule of the field ``notify``, with one of ``command``, ``webhook``, ``slack`` and ``email``.

    Texts may refer to variables of the submitting environment, as ``$NAME``: their values are in no request.
    """

    on: list[NotificationEvent] = []
    command: list[str] = []
    webhook: str = ""
    secret: str = ""
    slack: str = ""
    email: list[str] = []
    smtp: str = "localhost:25"
    user: str = ""
    password: str = ""
    sender: str = ""
    cost_above: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    price_per_hour: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    retry_for: Annotated[float, Meta(ge=0, le=7 * 86400)] | None = None


_EXAMPLE = "For example: notify: [{on: [failed], slack: $SLACK_WEBHOOK}]"
_SECRETS = ("slack", "secret", "password")
"""The fields that are secrets: only a reference to a variable is accepted."""
_OF = {
    "secret": "webhook",
    **dict.fromkeys(("smtp", "user", "password", "sender"), "email"),
}
"""The fields that apply to one kind of recipient only."""


def expand_rules(rules: Any) -> Any:
    """The rules as a list, with a single event or address also as a list, for validation."""
    rules = [rules] if isinstance(rules, dict) else rules
    return [_expand(rule) if isinstance(rule, dict) else rule for rule in rules]


def _expand(rule: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [value] if key in ("on", "email") and isinstance(value, str) else value
        for key, value in rule.items()
    }


def check_notify(rules: Sequence[NotifyRule]) -> None:
    """Raises InvalidJob for the first rule that is wrong. The message shows no value that may be a secret."""
    for number, rule in enumerate(rules):
        _check(f"notify[{number}]", rule)


def _check(where: str, rule: NotifyRule) -> None:
    from cloudtrain.runtime.notifications.rules import TARGETS, references, smtp_address

    targets = [name for name in TARGETS if getattr(rule, name)]
    if len(targets) != 1:
        got = " and ".join(targets) or "none"
        raise InvalidJob(f"{where}: expected one of {', '.join(TARGETS)}, got {got}", hint=_EXAMPLE)
    defaults = NotifyRule()
    for field, kind in _OF.items():
        if getattr(rule, field) != getattr(defaults, field) and kind not in targets:
            raise InvalidJob(f"{where}.{field}: belongs to {kind}, not to {targets[0]}", hint="Remove it.")
    for field in _SECRETS:
        value = getattr(rule, field)
        if value and not references(value):
            raise InvalidJob(
                f"{where}.{field}: is a secret, and has to be the name of a variable",
                hint=f"Write {field}: $NAME. Its value comes from the environment in which you submit the job.",
            )
    _check_webhook(f"{where}.webhook", rule.webhook)
    try:
        if not references(rule.smtp):
            smtp_address(rule.smtp)
    except ValueError:
        raise InvalidJob(
            f"{where}.smtp: {rule.smtp} is not a mail server and its port",
            hint="For example: smtp: mail.example.com:587, or with an IPv6 address: smtp: '[::1]:25'",
        ) from None
    for text in rule.command:
        if has_secret_format(text) or has_credentials(text):
            raise InvalidJob(
                f"{where}.command: has a secret in it, which requests would show",
                hint="Let the command read it from a variable, which secrets names.",
            )
    for name in notify_variables([rule]):
        check_variable(where, name)
    if ("cost" in rule.on or rule.price_per_hour) and not rule.cost_above:
        raise InvalidJob(
            f"{where}: needs cost_above, the limit of the cost", hint="For example: cost_above: 50"
        )


def _check_webhook(where: str, url: str) -> None:
    if not url:
        return
    if has_credentials(url) or has_secret_format(url):
        raise InvalidJob(
            f"{where}: the URL has a secret in it",
            hint="Write webhook: $NAME. Its value comes from the environment in which you submit the job.",
        )
    from cloudtrain.runtime.notifications.rules import references

    if not references(url) and not (re.match("https?://", url) and urlsplit(url).hostname):
        raise InvalidJob(f"{where}: is not a URL of http or https", hint=_EXAMPLE)


def notify_variables(rules: Sequence[NotifyRule]) -> list[str]:
    """The variables that the rules refer to."""
    from cloudtrain.runtime.notifications.rules import Rule

    return sorted({name for rule in rules for name in Rule.from_dict(msgspec.to_builtins(rule)).variables})
