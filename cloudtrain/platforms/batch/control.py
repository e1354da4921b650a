"""The connection to a login node that all commands share (OpenSSH's ControlMaster), and the login that opens it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from cloudtrain._system.owned import FolderIsOpen, own_folder
from cloudtrain._system.processes import SSH_SHARES_CONNECTIONS, USE_WSL
from cloudtrain._system.users import user_id
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.storage import state_home

IDLE = "10m"
"""How long an unused connection stays open."""
LONGEST_FOLDER = 41
"""The longest path of the socket's folder, in bytes: a socket's path has at most 104, and ssh adds 63."""
CONNECT_SECONDS = 20

_ALIAS = re.compile(r"[A-Za-z0-9_.@:/\[\]%+][A-Za-z0-9_.@:/\[\]%+-]*")


def check_alias(alias: str) -> str:
    """``alias``, if ssh can only read it as a host. Raises InvalidJob otherwise."""
    if _ALIAS.fullmatch(alias):
        return alias
    raise InvalidJob(
        f"login: {alias!r} is not the name of a host",
        hint="Name a Host of your ~/.ssh/config, or write user@host.",
    )


def ssh_command(alias: str, *, options: tuple[str, ...] = (), idle: str = IDLE) -> list[str]:
    """The beginning of every ssh command line, up to and including the host.

    The user's configuration applies, with its keys, agents and jump hosts, except for settings that suit only a
    terminal. Host keys are always checked.
    """
    settings = [
        "StrictHostKeyChecking=yes",
        f"ConnectTimeout={CONNECT_SECONDS}",
        "ServerAliveInterval=15",
        "ServerAliveCountMax=3",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
        "RequestTTY=no",
    ]
    if SSH_SHARES_CONNECTIONS:
        settings += ["ControlMaster=auto", f"ControlPath={socket_folder()}/cm-%C", f"ControlPersist={idle}"]
    given = [f"-o{setting}" for setting in settings]
    return ["ssh", *options, *given, "--", check_alias(alias)]


def batch_command(alias: str, *options: str) -> list[str]:
    """Like `ssh_command`, for a call that never prompts the user."""
    return ssh_command(alias, options=("-oBatchMode=yes", "-oLogLevel=ERROR", *options))


def batch_environment() -> dict[str, str]:
    """The environment for `batch_command`, in which the ssh of a jump host never prompts either."""
    return {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}


def socket_folder() -> Path:
    """The folder of the sockets, private to the user: in the state folder, or in ``/tmp`` if that path is too long.

    Raises PlatformError if another user created it.
    """
    home = state_home()
    folder = home / "ssh"
    if len(os.fsencode(folder)) > LONGEST_FOLDER:
        digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:8]
        folder = Path(f"/tmp/cloudtrain-{user_id()}-{digest}")
    try:
        own_folder(folder, create=True)
        folder.chmod(0o700)
    except FolderIsOpen as error:
        raise PlatformError(
            f"{error}; they could use your connections",
            hint="Sockets of ssh connections belong there: remove it, or set CLOUDTRAIN_HOME.",
        ) from None
    except OSError as error:
        raise PlatformError(f"{folder} cannot be created: {error.strerror}") from error
    return folder


def is_logged_in(alias: str) -> bool:
    """Whether there is an open connection."""
    return SSH_SHARES_CONNECTIONS and _control(alias, "check")


def log_out(alias: str) -> bool:
    """Close the connection. Returns whether there was one."""
    return SSH_SHARES_CONNECTIONS and _control(alias, "exit")


def drop(alias: str) -> bool:
    """Drop a connection whose ssh no longer answers, so that the next command opens another. Returns whether it did.

    A connection that answers is kept: the login node may only be slow, and the user may have typed a code to log in.
    If the node is gone, ssh closes the connection itself (``ServerAliveInterval``).
    """
    if not SSH_SHARES_CONNECTIONS or _control(alias, "check", timeout=10):
        return False
    done = subprocess.run(
        [*batch_command(alias, "-G")], capture_output=True, check=False, env=batch_environment()
    )
    for line in done.stdout.decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        if name == "controlpath" and "%" not in value:
            Path(value).unlink(missing_ok=True)
    return True


def _control(alias: str, what: str, *, timeout: float = 2) -> bool:
    command = batch_command(alias, "-O", what)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    except OSError as error:
        raise no_ssh(error) from error
    return done.returncode == 0


def no_ssh(error: OSError) -> PlatformError:
    """The error for an ssh that cannot be started."""
    return PlatformError(
        f"ssh cannot be started: {error.strerror}",
        hint="Install the OpenSSH client; on Debian: apt-get install openssh-client",
    )


KEEP = "8h"
"""How long a login stays open without use."""

_TIME = re.compile(r"([1-9][0-9]*)([smhd])")
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day"}


def check_time(text: str) -> str:
    """``text`` spelled out: ``8h`` becomes ``8 hours``. Raises InvalidJob."""
    match = _TIME.fullmatch(text)
    if not match:
        raise InvalidJob(f"{text!r} is not a time", hint="Write a number and a unit: 30m, 8h, 2d.")
    return f"{match[1]} {_UNITS[match[2]]}{'s' if match[1] != '1' else ''}"


def log_in(alias: str, keep: str = KEEP) -> str:
    """Log in, in the foreground: ssh prompts for passwords, codes, and the confirmation of an unknown host key.

    Returns the name of the node that answers. The connection stays open until it has been idle for ``keep``.

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
