"""Logs in to a login node for later commands, while the user is there to answer its questions."""

from __future__ import annotations

import re
import subprocess

from cloudtrain._system.processes import SSH_SHARES_CONNECTIONS, USE_WSL
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.platforms.batch.control import is_logged_in, no_ssh, ssh_command

KEEP = "8h"
"""How long a login stays open without use."""

_TIME = re.compile(r"([1-9][0-9]*)([smhd])")
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day"}


def check_time(text: str) -> str:
    """``text`` for people: ``8h`` is ``8 hours``. Raises InvalidJob."""
    match = _TIME.fullmatch(text)
    if not match:
        raise InvalidJob(f"{text!r} is not a time", hint="Write a number and a unit: 30m, 8h, 2d.")
    return f"{match[1]} {_UNITS[match[2]]}{'s' if match[1] != '1' else ''}"


def log_in(alias: str, keep: str = KEEP) -> str:
    """Log in, in the foreground: ssh asks for passwords, codes, and whether an unknown host key is right.

    Returns the name of the node that answers. The connection stays open until it was not used for the time ``keep``.

    Raises PlatformError if the login fails.
    """
    check_time(keep)
    options = ("-oStrictHostKeyChecking=ask", "-n")
    command = [
        *ssh_command(alias, options=options, idle=keep),
        '/bin/sh -c \'printf "%b" "\\0000"; uname -n\'',
    ]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise no_ssh(error) from error
    node = done.stdout.rpartition(b"\0")[2].decode("utf-8", "replace").strip()
    if done.returncode or not node:
        raise PlatformError(
            f"the login to {alias} failed", hint=f"ssh says why above. More detail: ssh -v {alias} true"
        )
    if SSH_SHARES_CONNECTIONS and not is_logged_in(alias):
        raise PlatformError(
            f"{alias} accepted the login, but the connection does not stay open",
            hint="The shared connection of ssh was refused: is ControlMaster disabled in /etc/ssh/ssh_config?",
        )
    return node


def lasts(keep: str) -> str:
    """How long a login lasts on this system, in a sentence."""
    if SSH_SHARES_CONNECTIONS:
        return f"The login stays open until it was not used for {check_time(keep)}."
    return f"The ssh of Windows keeps no login open: every command logs in again, with a key of its agent. {USE_WSL}."
