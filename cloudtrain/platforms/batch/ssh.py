"""A shell on a login node, through the user's OpenSSH client.

The login shell there may be any shell, and may print anything. It gets one line without special characters, which
starts ``/bin/sh``. Markers separate the output of the command from all other output, and show whether the command has
ended or its connection broke.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cloudtrain._system.descriptors import wait_for_data
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.control import batch_command, batch_environment, drop, no_ssh
from cloudtrain.platforms.batch.shell import CHUNK, Answer, ConnectionLost, NoAnswer, connection_error, lost
from cloudtrain.storage import state_home

IDLE_SECONDS = 1.0
"""How long a stream waits for output before it yields an empty piece."""

BEGIN_SECONDS = 60.0
"""How long the login and the startup files of the shell there may take until a command begins."""

SIZE_SECONDS = 0.5
"""How often the size of an answer is checked."""
LARGEST_ANSWER = 256 << 20
"""The largest answer in bytes: far more than the small files of all jobs of a user."""
LARGEST_GREETING = 4 << 20
"""Bytes that may precede the output of a command."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ./-_=:,+@")

_FIND = """command -v {name} >/dev/null 2>&1 || {{
PATH=$PATH:$( (bash -lc 'printf "\\n%s" "$PATH"' || sh -lc 'printf "\\n%s" "$PATH"') </dev/null 2>/dev/null | tail -n 1)
export PATH; }}
"""
"""Adds the PATH of a login shell if a command is missing: many clusters set it up only there."""


SESSIONS = 6
"""How many commands of this process run at the same time on a login node: sshd allows 10 per connection."""
OPEN_SECONDS = 300.0
"""How long after a command its connection is assumed open: much less than `control.IDLE`, when ssh closes it."""


class _Turns:
    """Lets one thread of this process open the connection that all of them share, and limits their sessions."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        self.sessions = threading.BoundedSemaphore(SESSIONS)
        self.used_at = float("-inf")
        """When the connection carried a command to its end, on the monotonic clock."""

    def is_open(self) -> bool:
        return time.monotonic() - self.used_at < OPEN_SECONDS


_turns: defaultdict[tuple[Path, str], _Turns] = defaultdict(_Turns)
"""By the state folder, which has the connections' sockets, and by alias."""


@contextlib.contextmanager
def _turn(alias: str) -> Iterator[None]:
    turns = _turns[state_home(), alias]
    with contextlib.ExitStack() as stack:
        if not turns.is_open():
            stack.enter_context(turns.opening)
            if turns.is_open():  # by another thread, meanwhile
                stack.close()
        stack.enter_context(turns.sessions)
        try:
            yield
        except PlatformError:
            turns.used_at = float("-inf")
            raise
        turns.used_at = time.monotonic()


class SshShell:
    """Runs commands on a login node.

    Args:
        alias: a ``Host`` of the user's ``~/.ssh/config``, or ``user@host``.
        needs: a command that must be found there, such as ``sbatch``.
    """

    def __init__(self, alias: str, *, needs: str = "") -> None:
        self.place = alias
        self.trips = 0
        """How many commands were sent."""
        self._prologue = _FIND.format(name=needs) if needs else ""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 60) -> Answer:
        """See `Shell.run`. Raises ConnectionLost if it is not known whether the command was carried out."""
        with _turn(self.place):
            return self._run(command, stdin, timeout)

    def _run(self, command: str, stdin: bytes, timeout: float) -> Answer:
        markers = _Markers()
        with tempfile.TemporaryFile() as errors:  # not a pipe: the shared connection may keep it open
            process = self._start(markers.wrap(self._prologue + command), errors)
            try:
                out = self._communicate(process, errors, markers, stdin, timeout)
            except subprocess.TimeoutExpired as late:
                raise self._too_late(late.timeout, has_begun=markers.has_begun(late.output or b"")) from None
            finally:
                if process.returncode is None:
                    _end(process)
            errors.seek(0)
            err = errors.read()
        if not markers.has_begun(out):
            raise connection_error(self.place, err.decode("utf-8", "replace"), process.returncode)
        found = markers.result(out)
        if found is None:
            raise lost(self.place)
        code, own = found
        return Answer(code, own, markers.after_begin(err))

    def _too_late(self, seconds: float, *, has_begun: bool) -> ConnectionLost:
        kind = NoAnswer if has_begun or not drop(self.place) else ConnectionLost
        return kind(
            f"{self.place} did not answer within {seconds:g} s",
            hint="The login node, its file system or its scheduler may be busy: try again later.",
        )

    def _communicate(
        self,
        process: subprocess.Popen[bytes],
        errors: IO[bytes],
        markers: _Markers,
        stdin: bytes,
        timeout: float,
    ) -> bytes:
        """The output of the process. Raises TimeoutExpired, and PlatformError if the output does not end.

        A command with input is limited in time only: Python cannot interrupt and resume sending it.
        """
        if stdin:
            return process.communicate(stdin, timeout=timeout)[0]
        began = time.monotonic()
        while True:
            left = began + timeout - time.monotonic()
            try:
                return process.communicate(timeout=max(min(left, SIZE_SECONDS), 0.0))[0]
            except subprocess.TimeoutExpired as late:
                is_silent = timeout - left > BEGIN_SECONDS and not markers.has_begun(late.output or b"")
                if left < SIZE_SECONDS or is_silent:
                    late.timeout = min(timeout, BEGIN_SECONDS) if is_silent else timeout
                    raise
                if max(len(late.output or b""), os.fstat(errors.fileno()).st_size) > LARGEST_ANSWER:
                    raise self._endless() from None

    def _endless(self) -> PlatformError:
        return PlatformError(
            f"{self.place} printed more than {LARGEST_ANSWER >> 20} MiB in answer to one command",
            hint=f"Does a startup file of your shell there print without end? Look at: ssh {self.place} true",
        )

    @contextlib.contextmanager
    def stream(self, command: str) -> Iterator[Iterator[bytes]]:
        """See `Shell.stream`. The pieces end when the command does. Raises ConnectionLost if the connection breaks.

        An empty piece means that nothing has arrived for a while. At the end, the command gets SIGTERM.
        """
        markers = _Markers()
        with tempfile.TemporaryFile() as errors:
            process = self._start(markers.wrap(self._prologue + _while_listening(command)), errors)
            try:
                yield self._pieces(process, markers, errors)
            finally:
                _end(process)

    def _pieces(
        self, process: subprocess.Popen[bytes], markers: _Markers, errors: IO[bytes]
    ) -> Iterator[bytes]:
        assert process.stdout
        descriptor = process.stdout.fileno()
        seen, until = b"", time.monotonic() + BEGIN_SECONDS
        while not markers.has_begun(seen):
            if not wait_for_data(descriptor, max(until - time.monotonic(), 0.0)):
                raise self._too_late(BEGIN_SECONDS, has_begun=False)
            data = os.read(descriptor, CHUNK)
            if not data:
                process.wait()
                errors.seek(0)
                raise connection_error(
                    self.place, errors.read().decode("utf-8", "replace"), process.returncode
                )
            seen += data
            if len(seen) > LARGEST_GREETING:
                raise self._endless()
        rest = markers.after_begin(seen)
        while True:
            own, held = markers.split(rest)
            if own:
                yield own
            if markers.result(held) is not None:
                return
            if not wait_for_data(descriptor, IDLE_SECONDS):
                yield b""
                rest = held
                continue
            data = os.read(descriptor, CHUNK)
            if not data:
                raise lost(self.place)
            rest = held + data

    def _start(self, remote: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        self.trips += 1
        try:
            return subprocess.Popen(
                [*batch_command(self.place), remote],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=batch_environment(),
                start_new_session=True,  # without a terminal to prompt on, and out of reach of Ctrl-C
            )
        except OSError as error:
            raise no_ssh(error) from error


class _Markers:
    """The markers around a command's output. They begin with NUL, which output rarely has: streams hold back little."""

    def __init__(self) -> None:
        self._mark = os.urandom(8).hex()
        self._begin = f"\0{self._mark}(\n".encode()
        self._end = re.compile(b"\0%s\\)([0-9]+)\n" % self._mark.encode())

    def wrap(self, command: str) -> str:
        """A command line for any login shell."""
        begin = f"printf '\\000%s(\\n' {self._mark}"
        script = f"{begin}; {begin} >&2\n(\n{command}\n)\nprintf '\\000%s)%d\\n' {self._mark} $?"
        text = "".join(chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in os.fsencode(script))
        return f'/bin/sh -c \'eval "$(printf %b "{text}")"\''

    def has_begun(self, out: bytes) -> bool:
        return self._begin in out

    def after_begin(self, out: bytes) -> bytes:
        return out.partition(self._begin)[2]

    def result(self, out: bytes) -> tuple[int, bytes] | None:
        """The exit code and the output; None if the command has not ended."""
        ends = list(self._end.finditer(out))
        if not ends:
            return None
        return int(ends[-1][1]), self.after_begin(out[: ends[-1].start()])

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Split ``data`` into output, and a rest that may be a part of the end marker."""
        size = len(self._mark) + 6
        start = data.find(b"\0", max(0, len(data) - size)) if data else -1
        full = data.find(f"\0{self._mark})".encode())
        if full >= 0:
            start = full
        return (data, b"") if start < 0 else (data[:start], data[start:])


_LISTEN = """exec 3<&0
{{ {command}
}} </dev/null & t=$!
{{ cat <&3 >/dev/null; kill $t; }} 2>/dev/null & c=$!
wait $t; code=$?
kill $c 2>/dev/null
exit $code"""


def _while_listening(command: str) -> str:
    """``command``, ended when this side closes its input, which also happens if this process is killed."""
    return _LISTEN.format(command=command)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
