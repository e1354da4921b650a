"""Errors of the OpenSSH client as sentences."""

from __future__ import annotations

import re
from enum import Enum, auto

FAILED = 255
"""The exit code of the client if the connection fails."""


class Advice(Enum):
    """The kind of advice for an error. The command to try depends on the platform."""

    CONFIGURATION = auto()
    CHANGED_KEY = auto()
    UNKNOWN_KEY = auto()
    LOGIN = auto()
    REACH = auto()


_KNOWN = (
    (
        r"([^\r\n]* line [0-9]+: Bad [^\r\n]*)",
        "OpenSSH's configuration is wrong: {found}",
        Advice.CONFIGURATION,
    ),
    (
        r"IDENTIFICATION HAS CHANGED|host key .*has changed",
        "the host key of {name} has changed",
        Advice.CHANGED_KEY,
    ),
    (r"REVOKED HOST KEY|host key .* revoked", "the host key of {name} is revoked", Advice.CHANGED_KEY),
    (
        r"Host key verification failed|host key is known",
        "the host key of {name} is not known",
        Advice.UNKNOWN_KEY,
    ),
    (
        r"Could not resolve hostname ([^:]*)",
        "there is no host {found}: its name cannot be resolved",
        Advice.REACH,
    ),
    (
        r"Session open refused|session request failed",
        "{name} allows no more sessions of one login",
        Advice.LOGIN,
    ),
    (r"Too many authentication failures", "{name} refused the login: too many keys were tried", Advice.LOGIN),
    (r"Permission denied \(([^)]*)\)", "{name} refused the login ({found})", Advice.LOGIN),
    (r"No supported authentication methods", "{name} refused the login", Advice.LOGIN),
    (r"(timed out|Timeout|not responding)", "{name} does not answer", Advice.REACH),
    (r"Connection refused", "{name} does not accept connections", Advice.REACH),
    (r"(No route to host|Network is unreachable)", "{name} cannot be reached: {found}", Advice.REACH),
)
"""Patterns of error output, of which the first match counts, each with its message and advice."""


def ssh_error(printed: str, name: str) -> tuple[str, Advice] | None:
    """Why the client could not connect to ``name``; None if no pattern matches what it ``printed``."""
    for pattern, message, advice in _KNOWN:
        if match := re.search(pattern, printed):
            found = match[1] if match.groups() and match[1] else ""
            return message.format(name=name, found=found), advice
    return None
