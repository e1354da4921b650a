"""Where the commands of a scheduler run: on this machine, or on a login node."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cloudtrain._system.processes import signal_group
from cloudtrain._system.signals import SIGKILL
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.connection import ConnectionLost

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
            timeout: in seconds. The command is ended after it.

        Raises PlatformError if the machine cannot be reached; ConnectionLost if the command may have been carried out,
        because it took too long, or the connection broke.
        """
        ...

    def stream(self, command: str) -> AbstractContextManager[Iterator[bytes]]:
        """Start ``command``, which may never end, such as ``tail -F``. Gives its output in pieces as they come.

        An empty piece says that nothing has come for a while. The command is ended with the context. Raises
        PlatformError if the machine cannot be reached, or no longer.
        """
        ...


class LocalShell:
    """The commands of this machine.

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
    """End the shell and what it has started, which are one session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        signal_group(process.pid, SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):  # unsent input
                pipe.close()
    process.wait()
