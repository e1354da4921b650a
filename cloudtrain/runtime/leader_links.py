"""The leader's connections to the hosts of its job, and its messages about hosts that it waits for."""

from __future__ import annotations

import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.link.authentication import Gate
from cloudtrain.link.conversation import Conversation
from cloudtrain.link.handshake import is_loopback
from cloudtrain.link.peer import Peer
from cloudtrain.runtime.output import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.link.tls import Tls

FIRST_NOTICE_SECONDS = 10.0
"""A shorter wait is normal, because the machines of a job do not start at the same time."""
NOTICE_SECONDS = 30.0

Say = Callable[[str], None]


class Waiting:
    """One wait. Call `report` regularly; it prints a line after 10 s, and then every 30 s.

    Args:
        limit: the seconds after which the wait ends.
        say: prints a line.
    """

    def __init__(self, limit: float, say: Say = say) -> None:
        self._limit = limit
        self._say = say
        self._since = time.monotonic()
        self._next = self._since + FIRST_NOTICE_SECONDS

    def report(self, whom: str) -> None:
        """Print a line if one is due. ``whom``: the missing hosts, such as ``algo-2, algo-3``."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + NOTICE_SECONDS
            self._say(f"waiting for {whom}, {now - self._since:.0f} s of {self._limit:g} s")


Message = dict[str, Any]

SPAWN_BYTES = 1 << 20
"""The longest command that mpirun's remote shell may send."""
PAUSED_SECONDS = 1.0
"""A longer gap between two polls means that this process was paused, and the hosts were not silent."""


@dataclass(eq=False)
class HostLink:
    """One host of the job, which may have several connections over time."""

    host: str
    peer: Peer | None
    number: str
    """A random number that distinguishes the process that joined from others of the same host."""
    conversation: Conversation = field(default_factory=Conversation)
    is_confirmed: bool = False
    """Whether the host has sent a message on this connection. Until then, it may switch to another connection."""
    state: str = "joined"
    seen: float = field(default_factory=time.monotonic)

    def send(self, message: Message) -> None:
        """Send a message. Without a connection, it is sent on the next one."""
        envelope = self.conversation.write(json.dumps(message).encode())
        if self.peer:
            self.peer.send(envelope)

    def beat(self) -> None:
        if self.peer:
            self.peer.send(self.conversation.write_fleeting(b'{"type": "beat"}'))


@dataclass(eq=False)
class _Connection:
    """An authenticated connection of a host, which may not have joined yet, or of mpirun's remote shell."""

    purpose: str
    peer: Peer = field(init=False)
    link: HostLink | None = None


class LeaderLinks:
    """Admits the hosts, receives their messages, and lets them reconnect after an outage.

    Args:
        listener: a bound, listening socket; `close` closes it.
        hosts: the names of all hosts.
        ranked: the hosts whose ranks form one world, in rank order. mpirun's remote shell refers to one by its number.
        keys: the keys for ``control``, which a host needs to join, for ``spawn``, which mpirun's remote shell needs,
            and for ``tls``, which encrypts the connections of other machines.
        host_timeout: the seconds without a message after which a host is lost.
        restarts: whether the platform restarts all hosts after a failure. If so, two processes of a host may exist at
            the same time, and the hosts of the next attempt may find the leader of this one.
    """

    def __init__(
        self,
        listener: socket.socket,
        hosts: Iterable[str],
        ranked: Sequence[str],
        keys: Mapping[str, bytes],
        host_timeout: float,
        *,
        restarts: bool = False,
    ) -> None:
        self._hosts = frozenset(hosts)
        self._restarts = restarts
        self._number = os.urandom(16).hex()
        """A random number by which a host that reconnects after an outage identifies its leader."""
        self.is_over = False
        """Whether the attempt has ended. Hosts that join now are those of the next attempt, if there is one."""
        self._ranked = ranked
        self._timeout = host_timeout
        self._selector = selectors.DefaultSelector()
        served = {purpose: keys[purpose] for purpose in ("control", "spawn")}
        self._gate = Gate(listener, served, self._selector)
        self._encrypt: Callable[[], Tls] | None = None
        if not is_loopback(listener.getsockname()[0]):
            from cloudtrain.link.tls import Tls, server_context  # a job on one machine does not need it

            self._encrypt = partial(Tls, server_context(keys["tls"]))
        self._links: dict[str, HostLink] = {}
        self._gone: set[str] = set()
        self._over: set[str] = set()
        """The numbers of clients that may not reconnect, although new clients of their hosts may join."""
        self._events: list[tuple[HostLink, Message]] = []
        self._last_poll = time.monotonic()

    @property
    def joined(self) -> Mapping[str, HostLink]:
        """The hosts that have joined and were not lost, by name."""
        return self._links

    @property
    def refused(self) -> int:
        """The number of connections that did not prove that they belong to the job."""
        return self._gate.refused

    def poll(self, timeout: float) -> list[tuple[HostLink, Message]]:
        """Wait for messages; returns each with its host.

        Two messages are not sent by the host itself: ``join``, and ``gone`` with the reason ``why``.
        """
        knocking = []
        for key, mask in self._selector.select(timeout):
            if key.data is self._gate:
                knocking.append(key.fileobj)
            elif not key.data.peer.closed:
                self._receive(key.data, mask)
        for admitted in self._gate.admit(knocking):
            connection = _Connection(admitted.purpose)
            limit = SPAWN_BYTES if admitted.purpose == "spawn" else None
            tls = None
            if admitted.encrypted:
                if self._encrypt is None:  # it is on another machine, and the address of the leader is not
                    admitted.socket.close()
                    continue
                tls = self._encrypt()
            connection.peer = Peer(admitted.socket, admitted.keys, self._selector, connection, limit, tls)
        self._look_for_silent_hosts(time.monotonic(), timeout)
        events, self._events = self._events, []
        return events

    def broadcast(self, message: Message) -> None:
        for link in list(self._links.values()):
            link.send(message)

    def beat(self) -> None:
        for link in list(self._links.values()):
            link.beat()

    def lose(self, link: HostLink, why: str) -> None:
        """Disconnect a host. The next `poll` returns ``gone`` for it."""
        if link.peer:
            link.peer.close()
        if self._links.pop(link.host, None):
            self._gone.add(link.host)
            self._events.append((link, {"type": "gone", "why": why}))

    def readmit(self, link: HostLink) -> None:
        """Let a lost host rejoin, with a new `LeaderClient`."""
        self._gone.discard(link.host)
        self._over.add(link.number)

    def close(self) -> None:
        self._gate.close()
        for key in list(self._selector.get_map().values()):
            key.data.peer.close()
        self._selector.close()

    def _receive(self, connection: _Connection, mask: int) -> None:
        try:
            for envelope in connection.peer.handle(mask):
                self._take(connection, envelope)
        except (EOFError, ConnectionError):
            if connection.link and not connection.link.is_confirmed:
                self._detach(connection)  # it did not wait for the answer
            else:
                self._drop(connection, "its runtime exited without a report")
        except OSError:  # the network is down
            self._detach(connection)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            self._drop(connection, f"its runtime sent an invalid message: {error!r}")

    def _take(self, connection: _Connection, envelope: bytes) -> None:
        """Raises ValueError, LookupError, TypeError, AttributeError or RecursionError for an invalid message."""
        if connection.purpose == "spawn":
            message = json.loads(envelope)
            named = self._links[self._ranked[message["host_rank"]]]
            named.send({"type": "spawn", "command": message["command"]})
            return
        link = connection.link
        if link is None:
            self._join(connection, json.loads(Conversation().read(envelope) or b""))
            return
        link.seen, link.is_confirmed = time.monotonic(), True
        data = link.conversation.read(envelope)
        if data is not None:
            message = json.loads(data)
            if message["type"] != "beat":
                self._events.append((link, message))

    def _join(self, connection: _Connection, message: Message) -> None:
        """Admit or refuse a new host, or one that reconnects after an outage."""
        host, number, received = message["host"], message["number"], message["received"]
        peer, known = connection.peer, self._links.get(host)
        returns = known is not None and known.number == number
        why, may_retry = "", self._restarts
        if message["type"] != "join" or host not in self._hosts:
            why, may_retry = f"{host!r} is not a host of this job", False
        elif message.get("leader", self._number) != self._number:
            why, may_retry = f"{host} has joined another leader before", False
        elif host in self._gone or number in self._over:
            why = f"{host} was lost"
        elif known and not returns:
            why = f"another process has joined as {host}"
            if self._restarts:
                self.lose(known, "its platform has started another process for it")
        elif self.is_over and self._restarts and not known:
            why = "this attempt of the job has ended"
        if why:
            answer = {"type": "refused", "why": why, "retry": may_retry}
            peer.send(Conversation().write_fleeting(json.dumps(answer).encode()))
            peer.close()
            return
        link = known or HostLink(host, peer, number)
        if link.peer and link.peer is not peer:
            link.peer.close()
        link.peer, link.seen, link.is_confirmed, connection.link = peer, time.monotonic(), False, link
        answer = {"type": "joined", "received": link.conversation.received, "leader": self._number}
        peer.send(link.conversation.write_fleeting(json.dumps(answer).encode()))
        for envelope in link.conversation.resume(received):
            peer.send(envelope)
        if not known:
            self._links[host] = link
            self._events.append((link, {"type": "join"}))

    def _detach(self, connection: _Connection) -> None:
        """Close a connection of a host that may reconnect."""
        connection.peer.close()
        if connection.link and connection.link.peer is connection.peer:
            connection.link.peer = None

    def _drop(self, connection: _Connection, why: str) -> None:
        connection.peer.close()
        if connection.link and connection.link.peer is connection.peer:
            self.lose(connection.link, why)

    def _look_for_silent_hosts(self, now: float, timeout: float) -> None:
        gap, self._last_poll = now - self._last_poll, now
        paused = gap if gap > timeout + PAUSED_SECONDS else 0.0
        for link in list(self._links.values()):
            link.seen += paused
            if now - link.seen > self._timeout:
                self.lose(link, f"no message for {self._timeout:g} s")
