"""The leader's side of the job: it knows every host, and decides for all of them.

Hosts (the leader's own included) connect over TCP and speak JSON, one message a line, each with a ``type``:

    from a host   join, ready, done, uploaded, failed, stopping, stacks, beat
    to the hosts  start, finish, complete, abort, stop, dump, beat, spawn
    and mpirun's remote shell on the leader says spawn, which the host that it means hears

    join ─ ready ──(all)── start ─ done ──(all)── finish ─ uploaded ──(all)── complete
                 any failed ── abort, with the one report that names the cause
                 any stopping ── stop

No host hears ``complete`` before every host has uploaded; none succeeds when another failed.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.diagnose import first_cause

BEAT_SECONDS = 2.0
LOST_SECONDS = 10.0
"""Seconds without a message after which a host counts as lost."""
SETTLE_SECONDS = 0.7
"""How long reports of failure are gathered before the cause is chosen among them."""
STACKS_SECONDS = 3.0
"""The same when ranks hang: all hosts are asked for the stacks of their ranks."""
LEAVE_SECONDS = 15.0
"""How long the leader waits for the hosts to leave, after its last word."""

Message = dict[str, Any]


@dataclass
class _HostConnection:
    """One host, as the leader sees it."""

    socket: socket.socket
    host: str | None = None
    state: str = "joining"
    seen: float = field(default_factory=time.monotonic)
    buffer: bytes = b""

    def send(self, message: Message) -> None:
        # a host that is gone is noticed by its silence
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")


class Leader:
    """Runs in a thread of the leader's runtime until every host has left.

    Args:
        listener: a bound, listening socket; the leader closes it.
        hosts: the names of all hosts.
        ranked: those whose ranks form one world, the host of rank 0 first; all, unless given.
        token: what a host has to know to join.
        spawn_token: what mpirun's remote shell has to know, to have a command run on a host.
        join_timeout: seconds within which all hosts have to join.
    """

    def __init__(
        self,
        listener: socket.socket,
        hosts: tuple[str, ...],
        token: str,
        *,
        spawn_token: str,
        ranked: tuple[str, ...] = (),
        master: tuple[str, int],
        join_timeout: float,
    ) -> None:
        self._listener = listener
        self._hosts = hosts
        self._ranked = ranked or hosts
        self._token = token
        self._spawn_token = spawn_token
        self._start: Message = {"type": "start", "master_addr": master[0], "master_port": master[1]}
        self._join_by = time.monotonic() + join_timeout
        self._connections: dict[str, _HostConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._failures: list[FailureReport] = []
        self._stacks: dict[str, str] = {}
        self._decide_at: float | None = None
        self._next_beat = 0.0
        self._said = ""
        self._started = self._finishing = False
        self._leaving = False
        """Whether a rank leaves because of a preemption: that others fail without it is no cause."""
        self._leave_by: float | None = None
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def start(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread.start()

    def join(self) -> None:
        """Wait until every host has left (bounded)."""
        self._thread.join(LEAVE_SECONDS + 1)

    def _run(self) -> None:
        while not self._over():
            for key, _ in self._selector.select(0.1):
                if key.data is None:
                    self._accept()
                else:
                    self._receive(key.data)
            self._tick(time.monotonic())
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]

    def _over(self) -> bool:
        if self._leave_by is None:
            return False
        return not self._connections or time.monotonic() > self._leave_by

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it went away again, or we have no descriptor for it
            connection, _ = self._listener.accept()
            connection.settimeout(5)
            self._selector.register(connection, selectors.EVENT_READ, _HostConnection(connection))

    def _receive(self, connection: _HostConnection) -> None:
        try:
            data = connection.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._leave(connection)
            return
        connection.seen = time.monotonic()
        *lines, connection.buffer = (connection.buffer + data).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
                self._handle(connection, message)
            except (ValueError, LookupError, TypeError, RecursionError):
                self._leave(connection)  # not one of ours
                return

    def _leave(self, connection: _HostConnection, why: str = "its runtime ended without a word") -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.host is None:
            return
        del self._connections[connection.host]
        if self._leave_by is None and not (self._said == "stop" and not self._started):
            self._lose(connection.host, why)

    def _handle(self, connection: _HostConnection, message: Message) -> None:
        kind = message["type"]
        if connection.host is None and kind == "spawn":
            self._spawn(message)
        elif connection.host is None:
            self._admit(connection, message)
        elif kind in ("ready", "done", "uploaded"):
            connection.state = kind
            if kind == "ready" and connection.host == self._ranked[0]:
                self._start["horovod"] = message.get("horovod")  # the host of rank 0 decides for all
        elif kind == "failed" and not self._leaving:
            report = FailureReport.from_dict(message["report"])
            if report.failure_class == FailureClass.HANG and not self._failures:
                self._tell({"type": "dump"})
                self._decide_at = time.monotonic() + STACKS_SECONDS
            self._fail(report)
        elif kind == "stacks":
            self._stacks[connection.host] = message["text"]
        elif kind == "noticed":
            self._tell({**message, "type": "notice"})
        elif kind == "stopping":
            self._say({"type": "stop"})
        elif kind == "leaving":
            self._leaving, self._decide_at = True, None
            self._say({"type": "stop"})
        elif kind == "left":
            self._tell({"type": "leave"})

    def _admit(self, connection: _HostConnection, message: Message) -> None:
        host = message["host"]
        known = message["type"] == "join" and host in self._hosts and host not in self._connections
        if not known or not hmac.compare_digest(message["token"], self._token):
            raise ValueError("a stranger")
        connection.host, connection.state = host, "joined"
        self._connections[host] = connection
        if self._said == "stop":
            connection.send({"type": "stop"})

    def _spawn(self, message: Message) -> None:
        if not hmac.compare_digest(message["token"], self._spawn_token):
            raise ValueError("a stranger")
        connection = self._connections[self._ranked[message["host_rank"]]]
        connection.send({"type": "spawn", "command": message["command"]})

    def _fail(self, report: FailureReport) -> None:
        self._failures.append(report)
        if self._decide_at is None:
            self._decide_at = time.monotonic() + SETTLE_SECONDS

    def _lose(self, host: str, why: str) -> None:
        self._fail(FailureReport.host_lost(host, why, time.time()))

    def _tick(self, now: float) -> None:
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._tell({"type": "beat"})
        if self._leave_by is not None:
            return
        if self._decide_at is not None:
            if now >= self._decide_at:
                self._abort()
            return
        self._look_for_lost_hosts(now)
        states = {connection.state for connection in self._connections.values()}
        if len(self._connections) == len(self._hosts) and len(states) == 1:
            [state] = states
            if state == "ready" and self._said == "":
                self._say_start()
            elif state == "done" and not self._finishing:
                self._finishing = True
                self._say({"type": "finish"})
            elif state == "uploaded":
                self._say({"type": "complete"})
                self._leave_by = now + LEAVE_SECONDS
        elif self._said == "stop" and not self._connections:
            self._leave_by = now

    def _look_for_lost_hosts(self, now: float) -> None:
        for connection in list(self._connections.values()):
            if now - connection.seen > LOST_SECONDS:
                self._leave(connection, f"nothing was heard of it for {LOST_SECONDS:.0f} s")
        missing = [host for host in self._hosts if host not in self._connections]
        if missing and now > self._join_by and not self._said:
            self._lose(missing[0], "it never joined the job")

    def _abort(self) -> None:
        report = first_cause(self._failures)
        if self._stacks:
            stacks = "\n".join(self._stacks[host] for host in self._hosts if host in self._stacks)
            report = FailureReport.from_dict({**report.to_dict(), "stacks": stacks})
        self._say({"type": "abort", "report": report.to_dict()})
        self._leave_by = time.monotonic() + LEAVE_SECONDS

    def _say_start(self) -> None:
        """Tell all hosts; where mpirun may run, and nowhere else, what it has to know."""
        self._started, self._said = True, "start"
        for connection in list(self._connections.values()):
            secret = {"spawn_token": self._spawn_token} if connection.host == self._ranked[0] else {}
            connection.send({**self._start, **secret})

    def _say(self, message: Message) -> None:
        """Tell all hosts something that is said once."""
        if self._said != message["type"]:
            self._said = message["type"]
            self._tell(message)

    def _tell(self, message: Message) -> None:
        for connection in list(self._connections.values()):
            connection.send(message)
