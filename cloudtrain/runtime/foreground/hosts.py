"""Runs ranks in the foreground on several hosts: starts `node` on each, through ssh, and decides for all of them.

As with ``horovodrun``, the hosts must have this working folder and this interpreter at the same paths, for example in a
shared folder. A host gets the environment and the secret of the ranks on its standard input.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Callable

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain.contract import FailureReport
from cloudtrain.errors import PlatformError
from cloudtrain.link.secret import fresh_secret
from cloudtrain.runtime.foreground.end_signals import Signals
from cloudtrain.runtime.foreground.lead import END_SECONDS, POLL_SECONDS, lead
from cloudtrain.runtime.foreground.plan import Order, Place
from cloudtrain.runtime.outer_variables import without_outer_mpi, without_outer_step
from cloudtrain.runtime.output import write_all
from cloudtrain.runtime.run_folder import LIBRARY
from cloudtrain.runtime.start import messages
from cloudtrain.runtime.start.host_link import HostLink
from cloudtrain.runtime.start.messages import Message

START_SECONDS = 120.0
"""The time that hosts may take to respond, during which the user may have to enter a password."""

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
"""Prefixes of variables that make sense only on this machine."""


class RemoteRanks:
    """The ranks of a host at the other end of a connection: a `lead.Host`."""

    scripts_started = True

    def __init__(
        self,
        name: str,
        destination: str,
        ranks: list[int],
        ssh: Sequence[str],
        write: Callable[[bytes], None],
    ) -> None:
        """Start the program on the host.

        Args:
            destination: the destination for ssh; empty for this machine.
            ssh: the command that connects to a host.
            write: writes whole lines of output.

        Raises OSError.
        """
        self.name, self.destination, self.ranks = name, destination, ranks
        self.ready: messages.Ready | None = None
        self.done: messages.Done | None = None
        self._inbox: SignalSafeQueue[Message | None] = SignalSafeQueue()
        command = [sys.executable, "-c", _NODE, LIBRARY]
        if destination:
            command = [*ssh, "-T", "--", destination, shlex.join(command)]
        self.link = HostLink(
            command,
            lambda _, message: self._inbox.put(message),
            write,
            lambda _why: self._inbox.put(None),
            shares_terminal=True,  # ssh may prompt for a password
        )
        self.link.start()

    def look_for_ready(self) -> None:
        """Check whether the host is ready. Raises PlatformError if it cannot run its ranks."""
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, messages.Ready):
                self.ready = message
            elif isinstance(message, messages.Refused):
                raise PlatformError(
                    f"{self.name}: {message.message}",
                    hint=message.hint
                    or "Use a folder that all hosts share, or add --send: it sends the script to them.",
                )
            else:
                raise PlatformError(
                    f"{self.name}: the connection ended before its ranks started",
                    hint=f"See the message above. This must work there: {shlex.quote(sys.executable)} -c "
                    '"import cloudtrain"',
                )

    def send(self, message: Message) -> None:
        self.link.send(message)

    def poll(self) -> Iterator[FailureReport]:
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, messages.Done):
                self.done = message
            elif isinstance(message, messages.Failed):
                yield FailureReport.from_dict(message.report)
            elif (message is None or isinstance(message, messages.Refused)) and not self.done:
                self.done = messages.Done([], False)
                why = message.message if message else "its connection ended"
                yield FailureReport.host_lost(self.name, why, time.time())


def run_on_hosts(
    order: Order, hosts: Sequence[Mapping[str, Any]], ssh: Sequence[str], signals: Signals
) -> int:
    """Run ranks on several hosts. Returns the exit status.

    Args:
        hosts: ``name``, ``destination`` and ``ranks`` of each; the first one has rank 0.
        ssh: the command that connects to a host.

    Raises PlatformError if a host cannot be reached, or cannot run its ranks.
    """
    started: list[RemoteRanks] = []
    secret, writing = fresh_secret(), threading.Lock()
    inherited = without_outer_step(without_outer_mpi(os.environ))
    environment = {name: value for name, value in inherited.items() if not name.startswith(_OF_MACHINE)}

    def write(lines: bytes) -> None:
        with writing:  # long lines take several calls
            write_all(1, lines)

    try:
        for host in hosts:
            started.append(RemoteRanks(**host, ssh=ssh, write=write))
            own = asdict(replace(order, ranks=len(host["ranks"])))
            started[-1].send(messages.Ranks(own, environment, os.getcwd(), secret))
        if number := _wait_until_ready(started, signals):
            return 128 + number
        _start(started)
        return lead(started, signals)
    finally:
        deadline = time.monotonic() + END_SECONDS
        for one in started:  # closing a connection ends all processes of the run on its host
            one.link.hang_up()
            if not one.ready:  # no ranks run there yet
                one.link.process.terminate()
        for one in started:
            one.link.close(max(0.1, deadline - time.monotonic()))


def _wait_until_ready(hosts: Sequence[RemoteRanks], signals: Signals) -> int:
    """Wait until all hosts are ready. Returns a signal if one arrives before that, or 0. Raises PlatformError."""
    deadline = time.monotonic() + START_SECONDS
    while not all(host.ready for host in hosts):
        if not signals.empty():
            return signals.get()
        if time.monotonic() > deadline:
            late = next(host.name for host in hosts if not host.ready)
            raise PlatformError(f"{late} did not answer within {START_SECONDS:g} s", hint="Try: ssh " + late)
        for host in hosts:
            host.look_for_ready()
        time.sleep(POLL_SECONDS)
    return 0


def _start(hosts: Sequence[RemoteRanks]) -> None:
    assert hosts[0].ready, "all hosts are"
    size, address, ports = sum(len(host.ranks) for host in hosts), _address(hosts), dict(hosts[0].ready.ports)
    port = ports.pop("master")
    for number, host in enumerate(hosts):
        place = Place(host.ranks, size, number, len(hosts), address, port, ports)
        host.send(messages.Start(host.name, asdict(place)))


def _address(hosts: Sequence[RemoteRanks]) -> str:
    """The address of the first host for the others, from the connections of ssh."""
    connections = [host.ready.ssh.split() if host.ready else [] for host in hosts]
    if hosts[0].destination:
        return connections[0][2] if len(connections[0]) == 4 else hosts[0].name
    return next((words[0] for words in connections[1:] if len(words) == 4), socket.gethostname())
