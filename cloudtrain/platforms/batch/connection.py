"""Why a login node could not be reached: what the OpenSSH client says, as errors that say what to do."""

from __future__ import annotations

import re

from cloudtrain.errors import InDoubt, PlatformError
from cloudtrain.platforms.common.ssh_errors import FAILED, Advice, ssh_error


class ConnectionLost(InDoubt):
    """The answer of a command was lost, or took too long: the command may have been carried out, or not."""

    is_transient = True


class NoAnswer(ConnectionLost):
    """The answer of a command takes too long, on a connection that works: a second try would take as long."""


class Unreachable(PlatformError):
    """The login node could not be reached, and a later attempt may succeed. No command was sent."""

    is_transient = True


_HINTS = {
    Advice.CONFIGURATION: "Correct your ~/.ssh/config.",
    Advice.CHANGED_KEY: "An attacker may have taken its place, or the node was reinstalled: ask its administrators. If "
    "they confirm the change, remove the old key with ssh-keygen -R HOST, then: cloudtrain slurm login {alias}",
    Advice.UNKNOWN_KEY: "This command shows the key, and asks whether it is right: cloudtrain slurm login {alias}",
    Advice.LOGIN: "Log in once: cloudtrain slurm login {alias}",
    Advice.REACH: "Check the name, your network and your VPN; this must work: ssh {alias} true",
}

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
    if code != FAILED:
        what = f": {last}" if last else ""
        return PlatformError(
            f"the login shell of {alias} ran no command, and exited with {code}{what}",
            hint=f"This must print hello: ssh {alias} /bin/sh -c 'echo\\ hello'. Remove from your shell's startup "
            "files there what ends or replaces a shell without a terminal.",
        )
    text = f"the connection to {alias} failed" + (f": {last}" if last else "")
    text, advice = ssh_error(said, alias) or (text, Advice.REACH)
    hint = _HINTS[advice].format(alias=alias)
    if not _NEVER_STARTED.search(said):
        return ConnectionLost(text, hint=hint)
    kind = Unreachable if advice is Advice.REACH else PlatformError
    return kind(text, hint=hint)


def lost(alias: str) -> ConnectionLost:
    """The error of a command that began and did not end."""
    return ConnectionLost(
        f"the connection to {alias} broke",
        hint="Run the command again. " + _HINTS[Advice.LOGIN].format(alias=alias),
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
