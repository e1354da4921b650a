"""The shells that run a scheduler's commands, here or on a login node, and the errors of unreachable login nodes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from cloudtrain._dataclass import dataclass
from cloudtrain._system.processes import signal_group
from cloudtrain._system.signals import SIGKILL
from cloudtrain.errors import InDoubt, PlatformError
from cloudtrain.platforms.common.ssh_errors import FAILED, Advice, ssh_error


class ConnectionLost(InDoubt):
    """The answer of a command was lost, or took too long: the command may or may not have run."""

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
    """The error for a command that did not start, as far as is known.

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
    """The error for a command whose connection broke after it started."""
    return ConnectionLost(
        f"the connection to {alias} broke",
        hint="Run the command again. " + _HINTS[Advice.LOGIN].format(alias=alias),
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


SHELL = "/bin/sh"
CHUNK = 1 << 16


@dataclass(frozen=True)
class Answer:
    """The result of a command."""

    code: int
    """Its exit code; negative if a signal ended it."""
    out: bytes = b""
    err: bytes = b""

    @property
    def text(self) -> str:
        """Its output, without white space at both ends."""
        return self.out.decode("utf-8", "replace").strip()

    @property
    def complaint(self) -> str:
        """Its error output, without white space at both ends."""
        return self.err.decode("utf-8", "replace").strip()


class Shell(Protocol):
    """Runs command lines of ``/bin/sh`` where the scheduler's commands are."""

    place: str
    """The alias of the login node, for messages; empty for this machine."""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60) -> Answer:
        """Run ``command`` to its end.

        Args:
            timeout: in seconds, after which the command is ended.

        Raises PlatformError if the machine cannot be reached; ConnectionLost if the command may have been carried out,
        because it took too long, or the connection broke.
        """

    def stream(self, command: str) -> AbstractContextManager[Iterator[bytes]]:
        """Start ``command``, which may never end, such as ``tail -F``. Yields its output in pieces as they arrive.

        An empty piece means that nothing has arrived for a while. The command is ended when the context exits.
        Raises PlatformError if the machine cannot be reached, or the connection breaks.
        """


class LocalShell:
    """Runs commands on this machine.

    Args:
        environ: the environment of the commands; None for that of this process.
    """

    place = ""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = environ

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60) -> Answer:
        process = self._start(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(stdin, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ConnectionLost(
                f"{_program(command)} did not answer within {timeout:g} s",
                hint="The scheduler or the file system may be busy: try again later.",
            ) from None
        finally:
            if process.returncode is None:
                _end(process)
        return Answer(process.returncode, out, err)

    @contextlib.contextmanager
    def stream(self, command: str) -> Iterator[Iterator[bytes]]:
        process = self._start(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert process.stdout
        descriptor = process.stdout.fileno()
        try:
            yield iter(lambda: os.read(descriptor, CHUNK), b"")
        finally:
            _end(process)

    def _start(self, command: str, *, stdin: int, stderr: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [SHELL, "-c", command],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            raise PlatformError(f"{SHELL} cannot be started: {error.strerror}") from error


def _program(command: str) -> str:
    return command.split(maxsplit=1)[0] if command.split() else SHELL


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the shell and the processes that it started, which share its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal_group(process.pid, SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):  # unsent input
                pipe.close()
    process.wait()
