"""Client of the keeper: sandboxes and containers of pods, on this machine."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SIZE = 1 << 20


class StartFailed(Exception):
    """A container's command could not be started."""


@dataclass(frozen=True)
class Mount:
    """A folder or a file of this machine, and its place in a container. Without a source: new memory."""

    source: str
    target: str
    read_only: bool = False
    size: int = 0
    """Of memory, in bytes; 0: no limit."""


@dataclass(frozen=True)
class User:
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Command:
    """The process of a container."""

    command: Sequence[str]
    env: Mapping[str, str]
    mounts: Sequence[Mount] = ()
    folder: str = "/"
    user: User = field(default_factory=User)
    read_only: bool = False
    drop_capabilities: bool = False
    no_new_privileges: bool = False
    searchable: Sequence[str] = ()
    """Folders that any user may pass, in the container, such as /root if Python is below it."""


class Container:
    """A started container."""

    def __init__(self, keeper: Containers, pid: int, ended: Future[int]) -> None:
        self._keeper = keeper
        self.pid = pid
        self._ended = ended

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, 128 and more for a signal; None if it still runs."""
        try:
            return self._ended.result(timeout)
        except TimeoutError:
            return None

    @property
    def running(self) -> bool:
        return not self._ended.done()

    def on_end(self, call: Callable[[], object]) -> None:
        """Call it when the container has ended, also if it has already."""
        self._ended.add_done_callback(lambda _: call())

    def send(self, number: int) -> None:
        """Send a signal to process 1; SIGKILL ends all processes of the container."""
        if self.running:
            self._keeper.ask("kill", pid=self.pid, signal=number)


class Containers:
    """Starts sandboxes and containers. Use it as a context manager; at its end they are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ids = itertools.count(1)
        self._sending = threading.Lock()
        self._asked: dict[int, Future[tuple[Any, list[int]]]] = {}
        self._ends: dict[int, Future[int]] = {}

    def __enter__(self) -> Containers:
        self._channel, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("kube_keeper.py"))]
            self._keeper = subprocess.Popen(program, stdin=far, start_new_session=True)
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._keeper.wait(60)
        self._channel.close()

    def sandbox(self, hostname: str, ip: str, listen: Sequence[str]) -> tuple[int, list[socket.socket]]:
        """A new sandbox, and sockets that listen inside it at ``listen``."""
        pid, descriptors = self._ask("sandbox", (), hostname=hostname, ip=ip, listen=list(listen))
        return pid, [socket.socket(fileno=one) for one in descriptors]

    def run(self, sandbox: int, wanted: Command, output: int) -> Container:
        """Start a container, which writes to the descriptor ``output``.

        Raises:
            StartFailed: there is no such command, or no such folder.
        """
        number = next(self._ids)
        scratch = self.folder / f"scratch-{number}"
        scratch.mkdir()
        try:
            pid, _ = self._ask(
                "run",
                (output,),
                sandbox=sandbox,
                scratch=str(scratch),
                command=list(wanted.command),
                env=dict(wanted.env),
                mounts=[vars(one) for one in wanted.mounts],
                folder=wanted.folder,
                user={**vars(wanted.user), "groups": list(wanted.user.groups)},
                read_only=wanted.read_only,
                drop_capabilities=wanted.drop_capabilities,
                no_new_privileges=wanted.no_new_privileges,
                searchable=list(wanted.searchable),
            )
        except OSError as error:
            raise StartFailed(str(error)) from None
        return Container(self, pid, self._end_of(pid))

    def end_sandbox(self, pid: int) -> None:
        self.ask("kill", pid=pid, signal=signal.SIGKILL)

    def ask(self, what: str, **message: Any) -> Any:
        return self._ask(what, (), **message)[0]

    def _ask(self, what: str, descriptors: Sequence[int], **message: Any) -> tuple[Any, list[int]]:
        number = next(self._ids)
        answer: Future[tuple[Any, list[int]]] = Future()
        self._asked[number] = answer
        data = json.dumps({"id": number, "do": what, **message}).encode()
        with self._sending:
            if descriptors:
                socket.send_fds(self._channel, [data], list(descriptors))
            else:
                self._channel.send(data)
        return answer.result(60)

    def _end_of(self, pid: int) -> Future[int]:
        return self._ends.setdefault(pid, Future())

    def _listen(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._channel, SIZE, 32)
            except OSError:
                data = b""
            if not data:
                for waiting in self._asked.values():
                    waiting.set_exception(OSError("the keeper of the containers has ended"))
                return
            message = json.loads(data)
            if "ended" in message:
                self._end_of(message["ended"]).set_result(message["code"])
            else:
                answer = self._asked.pop(message["id"])
                if "error" in message:
                    answer.set_exception(OSError(message["error"]))
                else:
                    # A new container may have the number of one that has ended.
                    self._forget(message["result"])
                    answer.set_result((message["result"], descriptors))

    def _forget(self, pid: Any) -> None:
        if isinstance(pid, int) and (end := self._ends.get(pid)) and end.done():
            del self._ends[pid]
