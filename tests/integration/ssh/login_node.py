"""A login node: a real sshd on a loopback port of this machine, with its own keys, accounts' shells and noise."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ALIAS = "kraken"


@dataclass
class LoginNode:
    """One sshd, and the user's OpenSSH configuration for it. ``program`` runs commands, as the login shell does.

    The client finds the configuration by ``ssh -F``: it reads no file of this machine's user.
    """

    folder: Path
    program: str = ""
    noise: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    options: str = ""
    port: int = 0
    sshd: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = self.port or probe.getsockname()[1]
        for name in ("host", "user"):
            keygen(self.folder / name)
        (self.folder / "authorized_keys").write_text((self.folder / "user.pub").read_text())
        self.trust()
        self.configure()
        self.start()

    @property
    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    @property
    def logins(self) -> int:
        """How many handshakes there were."""
        return self.log.count("Accepted publickey")

    def trust(self) -> None:
        """Let the client know the node's key."""
        key = (self.folder / "host.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}")

    def configure(self, *lines: str, port: int = 0, name: str = "127.0.0.1") -> None:
        """Write the client's configuration, and a ``ssh`` that uses it."""
        own = [
            f"Host {ALIAS}",
            f"HostName {name}",
            f"Port {port or self.port}",
            f"IdentityFile {self.folder}/user",
            "IdentitiesOnly yes",
            f"UserKnownHostsFile {self.folder}/known_hosts",
            *lines,
        ]
        (self.folder / "config").write_text("\n".join(own) + "\n")
        ssh = self.folder / "bin" / "ssh"
        ssh.parent.mkdir(exist_ok=True)
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.folder}/config "$@"\n')
        ssh.chmod(0o755)

    def start(self) -> None:
        sh = self.folder / "login_shell"
        sh.write_text(
            f'#!/bin/sh\n{self.noise}\nexec {self.program or "/bin/bash"} -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        sh.chmod(0o755)
        # With its own HOME: bash reads the .bashrc of this machine's user for every command that comes over ssh.
        environ = {"HOME": str(self.folder), **self.environ}
        variables = " ".join(shlex.quote(f"{name}={value}") for name, value in environ.items())
        config = f"""
Port {self.port}
ListenAddress 127.0.0.1
HostKey {self.folder}/host
AuthorizedKeysFile {self.folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
ForceCommand {sh}
SetEnv {variables}
{self.options}
"""
        (self.folder / "sshd_config").write_text(config)
        Path("/run/sshd").mkdir(exist_ok=True)
        with open(self.folder / "sshd.log", "ab") as log:
            self.sshd = subprocess.Popen(
                ["/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd_config"], stderr=log, stdout=log
            )
        deadline = time.monotonic() + 60
        while "Server listening" not in self.log:
            assert time.monotonic() < deadline and self.sshd.poll() is None, self.log
            time.sleep(0.01)

    def stop(self) -> None:
        """End the sshd with all connections, as a power cut does for the clients."""
        if self.sshd:
            self.break_connections()
            self.sshd.kill()
            self.sshd.wait()
            self.sshd = None

    def break_connections(self) -> None:
        """Kill the processes of all sessions, with what the sessions started left alone."""
        assert self.sshd
        for pid in children(self.sshd.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, 9)


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def keygen(path: Path, passphrase: str = "") -> None:
    for file in (path, path.with_suffix(".pub")):
        file.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path], check=True)


NewNode = Callable[..., LoginNode]
