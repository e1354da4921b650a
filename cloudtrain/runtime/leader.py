"""The leader of a job: it tracks every host and decides for all of them.

Hosts, including the leader's own, connect over TCP and exchange JSON messages, one per line, each with a ``type``:

    from a host   join, ready, done, files, listed, digests, shared, uploaded, failed, stopping, noticed, leaving, left,
                  stacks, beat
    to the hosts  start, finish, share, assemble, complete, abort, stop, notice, leave, dump, beat, spawn
    spawn         comes from mpirun's remote shell on the leader and is forwarded to the host that it names

    join ─ ready ──(all)── start ─ done ──(all)── finish ─ listed ──(all)── share ─ shared ──(all)── assemble
                                                         ─ uploaded ──(all)── complete
                 any failed ── abort, with the report of the cause
                 any stopping ── stop

The only host of a job uploads without ``listed`` and ``shared``. ``files`` and ``digests`` describe the outputs of a
host, so that the leader can merge them. ``complete`` is sent after every host has uploaded. If one host fails, none
succeeds.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.diagnose import first_cause
from cloudtrain.runtime.hangs import Hang
from cloudtrain.runtime.merge import MODEL, Merge, differing_message, stray_message, to_ranges

BEAT_SECONDS = 2.0
LOST_SECONDS = 10.0
"""Seconds without a message after which a host is considered lost."""
SETTLE_SECONDS = 0.7
"""Seconds for which failure reports are collected before one is chosen as the cause."""
STACKS_SECONDS = 3.0
"""The same if ranks hang: all hosts are asked for the stacks of their ranks."""
DISCONNECT_SECONDS = 15.0
"""Seconds for which the leader waits for hosts to disconnect, after its final message."""

Message = dict[str, Any]


@dataclass
class _HostConnection:
    """The connection of one host, or of a process that has not joined."""

    socket: socket.socket
    host: str | None = None
    state: str = "joining"
    seen: float = field(default_factory=time.monotonic)
    buffer: bytes = b""

    def send(self, message: Message) -> None:
        # the leader detects a lost host by its silence
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")


class Leader:
    """Runs in a thread of the leader's runtime until every host has disconnected.

    Args:
        listener: a bound, listening socket; the leader closes it.
        hosts: the names of all hosts.
        token: the secret that a host must send to join.
        spawn_token: the secret that mpirun's remote shell must send to run a command on a host.
        ranked: the hosts whose ranks form one world, starting with the host of rank 0. Default: all.
        master: address and port of rank 0.
        join_timeout: seconds within which all hosts must join.
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
        self._hang = Hang()
        self._abort_at: float | None = None
        self._next_beat = 0.0
        self._decision = ""
        self._started = False
        self._reached: set[str] = set()
        """The states after ``ready`` that all hosts have reached."""
        self._completed = True
        """Whether the ranks of all hosts that have ended so far ended with 0, whatever they were asked meanwhile."""
        self._merge = Merge(hosts)
        self._strays: dict[str, list[str]] = {}
        """Models that are not where they belong, by host."""
        self._leaving = False
        """Whether a rank exits because of a preemption. Failures of the other ranks are then consequences."""
        self._end_by: float | None = None
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def start(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._thread.start()

    def join(self) -> None:
        """Wait until every host has disconnected (bounded)."""
        self._thread.join(DISCONNECT_SECONDS + 1)

    def _run(self) -> None:
        while not self._is_over():
            for key, _ in self._selector.select(0.1):
                if key.data is None:
                    self._accept()
                else:
                    self._receive(key.data)
            self._tick(time.monotonic())
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]

    def _is_over(self) -> bool:
        if self._end_by is None:
            return False
        return not self._connections or time.monotonic() > self._end_by

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it disconnected, or this process is out of descriptors
            connection, _ = self._listener.accept()
            connection.settimeout(5)
            self._selector.register(connection, selectors.EVENT_READ, _HostConnection(connection))

    def _receive(self, connection: _HostConnection) -> None:
        try:
            data = connection.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._disconnect(connection)
            return
        connection.seen = time.monotonic()
        *lines, connection.buffer = (connection.buffer + data).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
                self._handle(connection, message)
            except (ValueError, LookupError, TypeError, RecursionError):
                self._disconnect(connection)  # not a host of this job
                return

    def _disconnect(
        self, connection: _HostConnection, why: str = "its runtime exited without a report"
    ) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.host is None:
            return
        del self._connections[connection.host]
        if self._end_by is None and not (self._decision == "stop" and not self._started):
            self._report_lost(connection.host, why)

    def _handle(self, connection: _HostConnection, message: Message) -> None:
        kind = message["type"]
        if connection.host is None and kind == "spawn":
            self._spawn(message)
        elif connection.host is None:
            self._admit(connection, message)
        elif kind in ("ready", "done", "listed", "shared", "uploaded"):
            connection.state = kind
            self._completed &= message.get("completed", True)
            self._strays.setdefault(connection.host, []).extend(message.get("strays", ()))
            if kind == "ready" and connection.host == self._ranked[0]:
                self._start["horovod"] = message.get("horovod")  # the host of rank 0 decides for all
        elif kind == "files":
            self._merge.add_files(connection.host, message["files"])
        elif kind == "digests":
            self._merge.add_digests(connection.host, message["digests"])
        elif kind == "failed" and not self._leaving:
            report = FailureReport.from_dict(message["report"])
            if report.failure_class == FailureClass.HANG and not self._failures:
                self._broadcast({"type": "dump"})
                self._abort_at = time.monotonic() + STACKS_SECONDS
            self._fail(report)
        elif kind == "stacks":
            self._stacks[connection.host] = message["text"]
            if "ranks" in message:
                self._hang.add(connection.host, message["ranks"])
        elif kind == "noticed":
            self._broadcast({**message, "type": "notice"})
        elif kind == "stopping":
            self._decide({"type": "stop"})
        elif kind == "leaving":
            self._leaving, self._abort_at = True, None
            self._decide({"type": "stop"})
        elif kind == "left":
            self._broadcast({"type": "leave"})

    def _admit(self, connection: _HostConnection, message: Message) -> None:
        host = message["host"]
        known = message["type"] == "join" and host in self._hosts and host not in self._connections
        if not known or not hmac.compare_digest(message["token"], self._token):
            raise ValueError("not a host of this job")
        connection.host, connection.state = host, "joined"
        self._connections[host] = connection
        if self._decision == "stop":
            connection.send({"type": "stop"})

    def _spawn(self, message: Message) -> None:
        if not hmac.compare_digest(message["token"], self._spawn_token):
            raise ValueError("not a host of this job")
        connection = self._connections[self._ranked[message["host_rank"]]]
        connection.send({"type": "spawn", "command": message["command"]})

    def _fail(self, report: FailureReport) -> None:
        self._failures.append(report)
        if self._abort_at is None:
            self._abort_at = time.monotonic() + SETTLE_SECONDS

    def _report_lost(self, host: str, why: str) -> None:
        self._fail(FailureReport.host_lost(host, why, time.time()))

    def _tick(self, now: float) -> None:
        if now >= self._next_beat:
            self._next_beat = now + BEAT_SECONDS
            self._broadcast({"type": "beat"})
        if self._end_by is not None:
            return
        if self._abort_at is not None:
            if now >= self._abort_at:
                self._abort()
            return
        self._look_for_lost_hosts(now)
        states = {connection.state for connection in self._connections.values()}
        if len(self._connections) == len(self._hosts) and len(states) == 1:
            [state] = states
            if state == "ready" and self._decision == "":
                self._decide_start()
            elif state not in ("joined", "ready", *self._reached):
                self._reached.add(state)
                self._proceed(state)
        elif self._decision == "stop" and not self._connections:
            self._end_by = now

    def _proceed(self, reached: str) -> None:
        """Start the next step after the training: all hosts have reached a state."""
        if reached == "done":
            self._decide({"type": "finish"})
        elif reached == "listed":
            parts, shares = os.urandom(8).hex(), self._merge.plan()
            for connection in list(self._connections.values()):
                share = shares[str(connection.host)]
                give, compare = to_ranges(share.give), to_ranges(share.compare)
                connection.send({"type": "share", "give": give, "compare": compare, "parts": parts})
        elif reached == "shared":
            self._broadcast(
                {"type": "assemble", "givers": self._merge.givers(), "warnings": list(self._warnings())}
            )
        elif reached == "uploaded":
            self._decide({"type": "complete", "completed": self._completed})
            self._end_by = time.monotonic() + DISCONNECT_SECONDS

    def _warnings(self) -> Iterator[str]:
        differing = self._merge.differing()
        if differing:
            yield differing_message(differing, self._hosts[0])
        strays = [self._strays[host] for host in self._hosts if self._strays.get(host)]
        if strays and MODEL not in self._merge.givers():
            yield stray_message(strays[0])

    def _look_for_lost_hosts(self, now: float) -> None:
        for connection in list(self._connections.values()):
            if now - connection.seen > LOST_SECONDS:
                self._disconnect(connection, f"no message for {LOST_SECONDS:.0f} s")
        missing = [host for host in self._hosts if host not in self._connections]
        if missing and now > self._join_by and not self._decision:
            self._report_lost(missing[0], "it never joined the job")

    def _abort(self) -> None:
        report = self._hang.blame(first_cause(self._failures))
        if self._stacks:
            stacks = "\n".join(self._stacks[host] for host in self._hosts if host in self._stacks)
            report = FailureReport.from_dict({**report.to_dict(), "stacks": stacks})
        self._decide({"type": "abort", "report": report.to_dict()})
        self._end_by = time.monotonic() + DISCONNECT_SECONDS

    def _decide_start(self) -> None:
        """Start all hosts. Only the host of rank 0, where mpirun may run, receives the spawn token."""
        self._started, self._decision = True, "start"
        for connection in list(self._connections.values()):
            secret = {"spawn_token": self._spawn_token} if connection.host == self._ranked[0] else {}
            connection.send({**self._start, **secret})

    def _decide(self, message: Message) -> None:
        """Send a message to all hosts, unless it was the last decision already."""
        if self._decision != message["type"]:
            self._decision = message["type"]
            self._broadcast(message)

    def _broadcast(self, message: Message) -> None:
        for connection in list(self._connections.values()):
            connection.send(message)
