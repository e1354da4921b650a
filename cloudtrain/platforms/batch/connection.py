"""Why a login node could not be reached: what the OpenSSH client says, as errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

from cloudtrain.errors import InDoubt, PlatformError


class ConnectionLost(InDoubt):
    """The answer of a command was lost, or took too long: the command may have been carried out, or not."""

    is_transient = True


class NoAnswer(ConnectionLost):
    """The answer of a command takes too long, on a connection that works: a second try would take as long."""


class Unreachable(PlatformError):
    """The login node could not be reached, and a later attempt may succeed. No command was sent."""

    is_transient = True


def _login(alias: str) -> str:
    return f"Log in once: cloudtrain slurm login {alias}"


def _try(alias: str) -> str:
    return f"Check the name, your network and your VPN; this must work: ssh {alias} true"


def _unknown_key(alias: str) -> str:
    return f"This command shows the key, and asks whether it is right: cloudtrain slurm login {alias}"


def _changed_key(alias: str) -> str:
    return (
        "An attacker may have taken its place, or the node was reinstalled: ask its administrators. If they confirm "
        f"the change, remove the old key with ssh-keygen -R HOST, then: cloudtrain slurm login {alias}"
    )


def _correct(_alias: str) -> str:
    return "Correct your ~/.ssh/config."


_KNOWN: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    (r"([^\r\n]* line [0-9]+: Bad [^\r\n]*)", "OpenSSH's configuration is wrong: {found}", _correct),
    (
        r"IDENTIFICATION HAS CHANGED|host key .*has changed",
        "the host key of {alias} has changed",
        _changed_key,
    ),
    (r"REVOKED HOST KEY|host key .* revoked", "the host key of {alias} is revoked", _changed_key),
    (r"Host key verification failed|host key is known", "the host key of {alias} is not known", _unknown_key),
    (r"Could not resolve hostname ([^:]*)", "there is no host {found}: its name cannot be resolved", _try),
    (r"Session open refused|session request failed", "{alias} allows no more sessions of one login", _login),
    (r"Too many authentication failures", "{alias} refused the login: too many keys were tried", _login),
    (r"Permission denied \(([^)]*)\)", "{alias} refused the login ({found})", _login),
    (r"No supported authentication methods", "{alias} refused the login", _login),
    (r"(timed out|Timeout|not responding)", "{alias} does not answer", _try),
    (r"Connection refused", "{alias} does not accept connections", _try),
    (r"(No route to host|Network is unreachable)", "{alias} cannot be reached: {found}", _try),
)
"""Patterns of error output, the first one that matches; the message; the hint."""

_NEVER_STARTED = re.compile(
    r"^(ssh: |Host key verification failed|@@@|No .* host key is known|.*Permission denied \(|.*Bad configuration|"
    r"kex_exchange_identification|Connection closed by .* port|Received disconnect .*authentication)",
    re.MULTILINE,
)
"""Error output of a client that had not logged in: no command was sent."""


def connection_error(alias: str, said: str, code: int) -> PlatformError:
    """The error of a command that did not begin, as far as is known.

    Args:
        said: the client's error output.
        code: the client's exit code.
    """
    last = _last_line(said)
    if code != 255:
        what = f": {last}" if last else ""
        return PlatformError(
            f"the login shell of {alias} ran no command, and exited with {code}{what}",
            hint=f"This must print hello: ssh {alias} /bin/sh -c 'echo\\ hello'. Remove from your shell's startup "
            "files there what ends or replaces a shell without a terminal.",
        )
    text = f"the connection to {alias} failed" + (f": {last}" if last else "")
    hint: Callable[[str], str] = _try
    for pattern, message, advice in _KNOWN:
        if match := re.search(pattern, said):
            found = match[1] if match.groups() and match[1] else ""
            text, hint = message.format(alias=alias, found=found), advice
            break
    if not _NEVER_STARTED.search(said):
        return ConnectionLost(text, hint=hint(alias))
    kind = Unreachable if hint is _try else PlatformError
    return kind(text, hint=hint(alias))


def lost(alias: str) -> ConnectionLost:
    """The error of a command that began and did not end."""
    return ConnectionLost(f"the connection to {alias} broke", hint="Run the command again. " + _login(alias))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
