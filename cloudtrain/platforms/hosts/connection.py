"""The supervisor's end of a connection to a host: `cloudtrain.runtime.start.remote_start` is the other one."""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import re
import selectors
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cloudtrain._system import owned
from cloudtrain._system.descriptors import set_blocking
from cloudtrain.platforms.common.ssh_errors import FAILED, Advice, ssh_error
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.runtime import routes
from cloudtrain.runtime.start import remote_start
from cloudtrain.runtime.start.remote_start import BEAT, BEAT_SECONDS, HEADER, LARGEST_FRAME, MARK

CONNECT_SECONDS = 10
OPTIONS = (
    "-T",
    "-o", "BatchMode=yes",
    "-o", f"ConnectTimeout={CONNECT_SECONDS}",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3",
    "-o", "ForwardX11=no",
    "-o", "ClearAllForwardings=yes",
    "-o", "RemoteCommand=none",
    "-o", "ControlMaster=no",
    "-o", "EscapeChar=none",
)  # fmt: skip
"""After the user's own options, which win: ssh takes the first value of an option."""

# Python 2 has to understand this too
_BOOT = (
    "import sys;v=sys.version_info[:2];"
    "v>=(3,9) or sys.exit('cloudtrain: this is Python %d.%d'%v);"
    "s=sys.stdin.buffer;"
    "[exec(compile(s.read(int(s.readline())),'cloudtrain','exec'),globals()) for _ in (1,2,3)]"
)
LONGEST_WORDS = 1 << 16
MOST_LOGIN_TEXT = 1 << 24
"""Bytes that login scripts may print."""
FINISH_SECONDS = 10.0
"""How long a host may take to remove its files after the job."""

NOT_OURS = "it sent something else than cloudtrain's messages"


_HINTS = {
    Advice.CONFIGURATION: "Correct your ~/.ssh/config.",
    Advice.CHANGED_KEY: "It was reinstalled, or another machine is in its place: ask who runs it. If the new key is "
    "right: ssh-keygen -R {name}, then ssh {name}",
    Advice.UNKNOWN_KEY: "Connect once by hand, and compare the fingerprint: ssh {name}",
    Advice.LOGIN: "Try it by hand: ssh {destination}. It has to work without a password: ssh-copy-id {destination}",
    Advice.REACH: "Check its name and that it is on, and try by hand: ssh {destination}",
}


class HostDisconnected(Exception):
    """The connection to a host has ended; the message is the reason."""


@dataclass(frozen=True)
class Problem:
    """Why a host cannot take part: a sentence that names it, and what to do."""

    what: str
    hint: str = ""


class Connection:
    """One ssh process, with the program that it runs on the host. Threads may send, and one reads.

    Args:
        ssh: the command of the ssh client with the user's options.
        python: the interpreter on the host.
    """

    def __init__(self, host: NamedHost, ssh: Sequence[str], python: str) -> None:
        self.host = host
        self._python = python
        command = [
            *ssh,
            *OPTIONS,
            "--",
            host.destination,
            f"exec {shlex.quote(python)} -I -c {shlex.quote(_BOOT)}",
        ]
        self._why = ""
        self._buffer = bytearray()
        self._outbox: queue.SimpleQueue[tuple[bytes, bytes] | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self.heard = time.monotonic()
        self._has_mark = False
        self._skipped = 0
        """Bytes that were received before the mark, and are not in the buffer any more."""
        self._words = b""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the client
            )
        except OSError as error:
            self._why = f"{command[0]} cannot be started: {error.strerror}"

    def descriptors(self) -> list[int]:
        """The pipes of the ssh process, which other processes must not inherit."""
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr) if self._process else ()
        return [pipe.fileno() for pipe in pipes if pipe and not pipe.closed]

    def open(self, asked: bytes) -> None:
        """Send the program and the question about the host. Does not wait."""
        if not self._process:
            return
        sources = [inspect.getsource(module).encode() for module in (routes, owned, remote_start)]
        self._outbox.put((b"", b"".join(b"%d\n%b" % (len(text), text) for text in sources)))
        self.send(remote_start.ASK, asked)
        threading.Thread(target=self._write, name=f"to {self.host.name}", daemon=True).start()

    def send(self, kind: bytes, content: bytes = b"") -> None:
        """Send a frame. Does not wait, and raises nothing."""
        self._outbox.put((kind, content))

    @property
    def is_over(self) -> bool:
        """Whether the ssh process has ended."""
        return self._process is None or self._process.poll() is not None

    @property
    def complained(self) -> bool:
        """Whether ssh, or the host's shell, has written an error."""
        return bool(self._complaint())

    @property
    def waiting(self) -> int:
        """How many frames have not been sent yet."""
        return self._outbox.qsize()

    def receive(self, timeout: float, within: float = float("inf")) -> tuple[bytes, bytes]:
        """The next frame that is not a beat.

        Raises HostDisconnected, also after ``timeout`` seconds of silence, and if no frame arrives ``within`` seconds.
        """
        deadline = time.monotonic() + within
        while True:
            frame = self._next_frame()
            if time.monotonic() >= deadline:
                raise HostDisconnected(f"no answer in {within:g} s")
            if frame is None:
                self._fill(timeout)
            elif frame[0] != BEAT:
                return frame

    def finish(self) -> None:
        """Let the host end by itself, for some seconds: it has received `END`."""
        self._outbox.put(None)
        if self._process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(FINISH_SECONDS)

    def close(self) -> None:
        """End the connection, and what it runs on the host."""
        self._outbox.put(None)
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe
            pipe.close()

    def problem(self) -> Problem:
        """Why the connection has ended or gives no answer, as far as ssh or the host's shell prints it."""
        name, lines = self.host.name, self._complaint()
        text = "\n".join(lines)
        last = lines[-1] if lines else ""
        if self._why:
            return Problem(f"{name}: {self._why}", "Install the OpenSSH client, or set platform_options.ssh.")
        if self._code() in (None, FAILED) and (error := ssh_error(text, name)):
            what, advice = error
            return Problem(what, _HINTS[advice].format(name=name, destination=self.host.destination))
        version = re.search(r"cloudtrain: this is Python ([0-9.]+)", text)
        if version or "Unknown option: -I" in text:
            return Problem(
                f"{name}: {self._python} is Python {version[1] if version else 2}, and cloudtrain needs 3.9 or newer",
                "Set platform_options.python to a newer one that every host has.",
            )
        if self._code() in (126, 127) or "ommand not found" in text:
            return Problem(
                f"{name} has no Python: {last or self._python + ' was not found'}",
                "Set platform_options.python to the path of a Python 3.9 or newer that every host has.",
            )
        printed = b"" if self._has_mark or last else bytes(self._buffer).strip()
        if printed:
            line = printed.splitlines()[-1].decode("utf-8", "replace")
            return Problem(
                f"{name} does not run commands: it prints {line[:100]!r}",
                "A forced command or a login script does that. This must print a version: "
                f"ssh {self.host.destination} {self._python} -V",
            )
        if self._code() == FAILED or not last:
            return Problem(
                f"{name} cannot be reached: {last or f'no answer in {CONNECT_SECONDS} s'}",
                _HINTS[Advice.REACH].format(name=name, destination=self.host.destination),
            )
        return Problem(f"{name}: {last}", f"Try it by hand: ssh {self.host.destination} {self._python} -V")

    def _complaint(self) -> list[str]:
        process = self._process
        if process is None or not process.stderr:
            return []
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        if process.stderr.closed:
            return []
        set_blocking(process.stderr.fileno(), False)
        with contextlib.suppress(OSError):
            self._words = (self._words + (process.stderr.read(LONGEST_WORDS) or b""))[-LONGEST_WORDS:]
        return [line.strip() for line in self._words.decode("utf-8", "replace").splitlines() if line.strip()]

    def _code(self) -> int | None:
        return self._process.poll() if self._process else None

    # -- reads

    def _fill(self, timeout: float) -> None:
        if self._process is None:
            raise HostDisconnected(self._why)
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout):
                raise HostDisconnected(f"no answer for {timeout:g} s")
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        if not data:
            raise HostDisconnected("the connection has ended")
        self.heard = time.monotonic()
        self._buffer += data

    def _next_frame(self) -> tuple[bytes, bytes] | None:
        if not self._has_mark:
            place = self._buffer.find(MARK)
            if place < 0:
                self._skipped += max(0, len(self._buffer) - LONGEST_WORDS)
                del self._buffer[:-LONGEST_WORDS]
                if self._skipped > MOST_LOGIN_TEXT:
                    raise HostDisconnected(NOT_OURS)
                return None
            del self._buffer[: place + len(MARK)]
            self._has_mark = True
        if len(self._buffer) < HEADER.size:
            return None
        kind, size = HEADER.unpack_from(self._buffer)
        if size > LARGEST_FRAME:
            raise HostDisconnected(NOT_OURS)
        if len(self._buffer) < HEADER.size + size:
            return None
        content = bytes(self._buffer[HEADER.size : HEADER.size + size])
        del self._buffer[: HEADER.size + size]
        return kind, content

    # -- writes, in a thread

    def _write(self) -> None:
        assert self._process
        assert self._process.stdin
        pipe = self._process.stdin
        with contextlib.suppress(OSError), pipe:
            while True:
                try:
                    frame = self._outbox.get(timeout=BEAT_SECONDS)
                except queue.Empty:
                    frame = (BEAT, b"")
                if frame is None:
                    return
                kind, content = frame
                pipe.write(HEADER.pack(kind, len(content)) + content if kind else content)
                pipe.flush()
