"""A run in the foreground on several hosts: starts `node` on each, through ssh, and decides for all of them.

The hosts have this working folder and this interpreter at the same paths, as ``horovodrun`` expects: in a shared
folder, for example. The environment and the secret of the ranks reach a host on its standard input.
"""

from __future__ import annotations

import os
import queue
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cloudtrain._system.signals import linux_number, own_number
from cloudtrain.contract import FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.runtime.diagnose.first_cause import Failures
from cloudtrain.runtime.foreground.plan import Order, Place
from cloudtrain.runtime.foreground.ranks import END_SIGNALS, GRACE_SECONDS, asked_to_end, status_of
from cloudtrain.runtime.outer_variables import without_outer_mpi, without_outer_step
from cloudtrain.runtime.output import say, write_all
from cloudtrain.runtime.run_folder import LIBRARY
from cloudtrain.runtime.start import messages
from cloudtrain.runtime.start.host_link import HostLink
from cloudtrain.runtime.start.messages import Message

POLL_SECONDS = 0.02
START_SECONDS = 120.0
"""How long hosts may take to answer: the user may have to enter a password."""
END_SECONDS = 15.0
"""How long hosts may take to end after their ranks were killed."""

_NODE = (
    "import sys; del sys.path[0]; sys.path.append(sys.argv[1]);"
    " from cloudtrain.runtime.foreground.node import main; sys.exit(main())"
)
_OF_MACHINE = (
    "SSH_",
    "XDG_",
    "DBUS_",
    "DISPLAY",
    "HOSTNAME",
    "TMPDIR",
    "TERM",
    "WINDOWID",
    "PWD",
    "OLDPWD",
    "SHLVL",
)
"""Variables, by their beginnings, that make sense on this machine only."""


@dataclass
class Node:
    """One host."""

    name: str
    destination: str
    """For ssh; empty: this machine."""
    ranks: list[int]
    link: HostLink
    ready: messages.Ready | None = None
    done: messages.Done | None = None


def run_on_hosts(
    order: Order, hosts: Sequence[Mapping[str, Any]], ssh: Sequence[str], signals: queue.SimpleQueue[int]
) -> int:
    """Run ranks on several hosts. Returns the exit status.

    Args:
        hosts: ``name``, ``destination`` and ``ranks`` of each; the first one has rank 0.
        ssh: the command that connects to a host.

    Raises PlatformError if a host cannot be reached, or cannot run its ranks.
    """
    head = _Head(order, ssh, signals)
    try:
        for host in hosts:
            head.connect(**host)
        return head.run()
    finally:
        head.end()


class _Head:
    def __init__(self, order: Order, ssh: Sequence[str], signals: queue.SimpleQueue[int]) -> None:
        self._order = order
        self._nodes: list[Node] = []
        self._ssh = ssh
        self._signals = signals
        self._inbox: queue.SimpleQueue[tuple[Node, Message | None]] = queue.SimpleQueue()
        self._failures = Failures()
        self._secret = fresh_secret()
        self._ended_by = 0
        self._writing = threading.Lock()
        """Held while a line is written: long ones take several calls."""

    def run(self) -> int:
        if not self._wait_until_ready():
            return 128 + self._ended_by
        self._start()
        self._watch()
        done = [node.done for node in self._nodes if node.done]
        if self._ended_by:
            is_complete = len(done) == len(self._nodes) and all(one.all for one in done)
            return 0 if is_complete else 128 + self._ended_by
        return status_of(self._failures, [rank for one in done for rank in one.completed])

    def connect(self, name: str, destination: str, ranks: list[int]) -> None:
        """Start the program on a host. Raises OSError."""
        command = [sys.executable, "-c", _NODE, LIBRARY]
        if destination:
            command = [*self._ssh, "-T", "--", destination, shlex.join(command)]
        link = HostLink(
            command,
            lambda _, message: self._inbox.put((node, message)),
            self._print,
            lambda _why: self._inbox.put((node, None)),
            shares_terminal=True,  # ssh may prompt for a password
        )
        node = Node(name, destination, ranks, link)
        self._nodes.append(node)
        inherited = without_outer_step(without_outer_mpi(os.environ))
        environment = {name: value for name, value in inherited.items() if not name.startswith(_OF_MACHINE)}
        order = asdict(replace(self._order, ranks=len(ranks)))
        link.start(messages.Ranks(order, environment, os.getcwd(), self._secret).to_line())

    def _print(self, lines: bytes) -> None:
        with self._writing:
            write_all(1, lines)

    def _wait_until_ready(self) -> bool:
        """Returns False if a signal arrived first. Raises PlatformError."""
        deadline = time.monotonic() + START_SECONDS
        while not all(node.ready for node in self._nodes):
            if not self._signals.empty():
                self._ended_by = self._signals.get()
                return False
            if time.monotonic() > deadline:
                late = next(node.name for node in self._nodes if not node.ready)
                raise PlatformError(
                    f"{late} did not answer within {START_SECONDS:g} s", hint="Try: ssh " + late
                )
            try:
                node, message = self._inbox.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(message, messages.Ready):
                node.ready = message
            elif isinstance(message, messages.Refused):
                raise PlatformError(
                    f"{node.name}: {message.message}",
                    hint=message.hint
                    or "Use a folder that all hosts share, or add --send: it sends the script to them.",
                )
            else:
                raise PlatformError(
                    f"{node.name}: the connection ended before its ranks started",
                    hint=f"See the message above. This must work there: {shlex.quote(sys.executable)} -c "
                    '"import cloudtrain"',
                )
        return True

    def _start(self) -> None:
        size = sum(len(node.ranks) for node in self._nodes)
        address = self._address()
        assert self._nodes[0].ready, "all hosts are"
        ports = dict(self._nodes[0].ready.ports)
        port = ports.pop("master")
        for number, node in enumerate(self._nodes):
            place = Place(node.ranks, size, number, len(self._nodes), address, port, ports)
            node.link.send(messages.Start(node.name, asdict(place)))

    def _address(self) -> str:
        """The address of the first host, as the others see it: that of ssh's connections."""
        connections = [node.ready.ssh.split() if node.ready else [] for node in self._nodes]
        if self._nodes[0].destination:
            return connections[0][2] if len(connections[0]) == 4 else self._nodes[0].name
        return next((words[0] for words in connections[1:] if len(words) == 4), socket.gethostname())

    def _watch(self) -> None:
        kill_at = float("inf")
        while not all(node.done for node in self._nodes):
            try:
                node, message = self._inbox.get(timeout=POLL_SECONDS)
                self._take(node, message)
            except queue.Empty:
                pass
            if self._failures.are_settled and not self._ended_by:
                self._broadcast(messages.Abort())
                self._wait_for_ends(GRACE_SECONDS)
                return
            if time.monotonic() >= kill_at:
                break
            if self._signals.empty():
                continue
            number = self._signals.get()
            if number == own_number("SIGUSR1"):
                self._broadcast(messages.Notify("signal SIGUSR1"))
                continue
            if self._ended_by:
                break
            self._ended_by = number
            kill_at = time.monotonic() + GRACE_SECONDS
            reason = END_SIGNALS[signal.Signals(number)]
            self._broadcast(messages.Stop(linux_number(number), reason))
            say(asked_to_end(number))
        self._broadcast(messages.Kill())
        self._wait_for_ends(END_SECONDS)

    def _take(self, node: Node, message: Message | None) -> None:
        if isinstance(message, messages.Done):
            node.done = message
        elif isinstance(message, messages.Failed) and not self._ended_by:
            self._failures.add(FailureReport.from_dict(message.report))
        elif (message is None or isinstance(message, messages.Refused)) and not node.done:
            node.done = messages.Done([], False)
            why = message.message if message else "its connection ended"
            if not self._ended_by:
                self._failures.add(FailureReport.host_lost(node.name, why, time.time()))

    def _wait_for_ends(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not all(node.done for node in self._nodes) and time.monotonic() < deadline:
            try:
                self._take(*self._inbox.get(timeout=POLL_SECONDS))
            except queue.Empty:
                if not self._signals.empty():
                    self._signals.get()
                    self._broadcast(messages.Kill())

    def _broadcast(self, message: Message) -> None:
        for node in self._nodes:
            node.link.send(message)

    def end(self) -> None:
        """Close all connections, which ends what still runs on the hosts."""
        deadline = time.monotonic() + END_SECONDS
        for node in self._nodes:
            node.link.hang_up()
            if not node.ready:  # it runs nothing yet
                node.link.process.terminate()
        for node in self._nodes:
            node.link.close(max(0.1, deadline - time.monotonic()))
