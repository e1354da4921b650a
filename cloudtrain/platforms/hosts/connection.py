"""The supervisor's end of a connection to a host. The other end is `cloudtrain.runtime.start.remote`."""

from __future__ import annotations

import contextlib
import queue
import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import InspectLoader
from importlib.util import find_spec

from cloudtrain.platforms.common.ssh_errors import FAILED, Advice, ssh_error
from cloudtrain.platforms.hosts.host_list import NamedHost
from cloudtrain.runtime.start.host_link import LONGEST_COMPLAINT, HostLink
from cloudtrain.runtime.start.messages import Beat, Message

CONNECT_SECONDS = 10
ANSWER_SECONDS = CONNECT_SECONDS + 10.0
"""How long a host may take to connect and send its first message."""
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
"""They follow the user's own options, which take precedence: ssh uses the first value of an option."""

# must be valid in Python 2 too. With a buffer of one byte, it reads nothing of the messages that follow
_BOOT = (
    "import sys,io;v=sys.version_info[:2];"
    "v>=(3,9) or sys.exit('cloudtrain: this is Python %d.%d'%v);"
    "s=io.BufferedReader(io.FileIO(0,'rb',closefd=False),1);"
    "exec(s.read(int(s.readline())))"
)
_START = """
import sys, types
for name, source in {sources!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), vars(module))
sys.exit(module.main())
"""
_SENT = (
    "cloudtrain._dataclass",
    "cloudtrain.contract.documents",
    "cloudtrain._system.descriptors",
    "cloudtrain._system.gpu_models",
    "cloudtrain._system.interfaces",
    "cloudtrain._system.owned",
    "cloudtrain.runtime.start.messages",
    "cloudtrain.runtime.start.remote",
)
"""The modules that a host needs to describe itself, each after those that it imports. The last one is the program."""
MOST_LOGIN_TEXT = 1 << 24
"""Bytes that login scripts may print."""
MOST_WAITING = 64
"""How many messages of a host may wait to be handled before no more are read."""
CLOSE_SECONDS = 1.0

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


@cache
def _program() -> bytes:
    """The program that a host runs, with the sources of all modules that it imports."""
    sources = []
    for name in _SENT:
        spec = find_spec(name)
        assert spec and isinstance(spec.loader, InspectLoader), "it is a part of cloudtrain"
        sources.append((name, spec.loader.get_source(name)))
    return _START.format(sources=sources).encode()


class Connection:
    """One ssh process, with the program that it runs on the host. Any thread may send; one receives.

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
        self._inbox: queue.Queue[Message | bytes | str] = queue.Queue(MOST_WAITING)
        """Messages, lines of output, and the reason why the connection ended."""
        self._login_text = b""
        self._skipped = 0
        """Bytes that were received before the first message, and are not kept."""
        self._link: HostLink | None = None
        try:
            self._link = HostLink(
                command,
                lambda _host, message: self._take(message),
                self._take_output,
                self._inbox.put,
                errors=subprocess.PIPE,
                timeout=ANSWER_SECONDS,
            )
        except OSError as error:
            self._why = f"{command[0]} cannot be started: {error.strerror}"
            self._inbox.put(self._why)

    def open(self, inquiry: Message) -> None:
        """Send the program and the inquiry. Does not wait."""
        if self._link:
            program = _program()
            self._link.start(b"%d\n%b" % (len(program), program))
            self.send(inquiry)

    def send(self, message: Message) -> None:
        """Does not wait, and raises nothing."""
        if self._link:
            self._link.send(message)

    def limit_silence(self, seconds: float) -> None:
        """Consider the connection ended after this number of seconds without a message."""
        if self._link:
            self._link.timeout = seconds

    @property
    def is_over(self) -> bool:
        """Whether the ssh process has ended."""
        return self._link is None or self._link.process.poll() is not None

    @property
    def complained(self) -> bool:
        """Whether ssh, or the host's shell, has written an error."""
        return bool(self._complaint())

    @property
    def waiting(self) -> int:
        """How many messages have not been sent yet."""
        return self._link.waiting if self._link else 0

    def receive(self, within: float | None = None) -> Message | bytes:
        """The next message that is not a beat, or whole lines of output.

        Raises HostDisconnected if the connection ended, or neither arrives ``within`` seconds.
        """
        try:
            found = self._inbox.get(timeout=within)
        except queue.Empty:
            raise HostDisconnected(f"no answer in {within:g} s") from None
        if isinstance(found, str):
            raise HostDisconnected(found)
        return found

    def close(self, seconds: float = 0.0) -> None:
        """End the connection and its program on the host, which first has ``seconds`` to end by itself."""
        if self._link is None:
            return
        self._link.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._link.process.wait(seconds)
        if self._link.process.poll() is None:
            self._link.process.terminate()  # so that the host notices it
        self._link.close(CLOSE_SECONDS)
        deadline = time.monotonic() + CLOSE_SECONDS
        while not self._link.is_read and time.monotonic() < deadline:  # the inbox may be full
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=0.01)
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait("the connection was closed")  # wakes a thread that receives

    def problem(self) -> Problem:
        """Why the connection has ended or gives no answer, as far as the output of ssh or the host's shell shows it."""
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
        unfinished = self._link.reader.unfinished if self._link else b""
        printed = b"" if last else (self._login_text + unfinished).strip()
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
        if self._link is None:
            return []
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._link.process.wait(1)
        lines = self._link.complaint().decode("utf-8", "replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def _code(self) -> int | None:
        return self._link.process.poll() if self._link else None

    # -- called by the thread that reads

    def _take(self, message: Message) -> None:
        self._login_text = b""
        if not isinstance(message, Beat):
            self._inbox.put(message)

    def _take_output(self, lines: bytes) -> None:
        assert self._link
        if self._link.reader.has_frames:
            if lines:
                self._inbox.put(lines)
            return
        self._login_text = (self._login_text + lines)[-LONGEST_COMPLAINT:]
        self._skipped += len(lines)
        if self._skipped > MOST_LOGIN_TEXT >= self._skipped - len(lines):
            self._inbox.put(NOT_OURS)
            self._link.kill()
