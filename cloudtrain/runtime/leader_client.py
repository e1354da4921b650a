"""A host's connection to the `Leader`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from cloudtrain._system.queues import SignalSafeQueue
from cloudtrain._system.sockets import create_server, plain
from cloudtrain.contract import Settings
from cloudtrain.errors import PlatformError
from cloudtrain.link.authentication import BACKLOG
from cloudtrain.link.conversation import Conversation
from cloudtrain.link.handshake import ENCRYPTED, NotAuthenticated, is_loopback, prove
from cloudtrain.link.peer import Peer
from cloudtrain.runtime.leader_links import Message, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.link.tls import Tls

CONNECT_SECONDS = 1.0
"""How long one attempt to connect may take: the kernel resends a lost packet after one second."""
PROVE_SECONDS = 5.0
IMPOSTOR_SECONDS = 10.0
"""How long a wrong process may answer at the leader's address before the host gives up."""
RECONNECT_SECONDS = 5.0
"""Seconds of silence after which the host reconnects. The leader sends a message every two seconds."""
PAUSED_SECONDS = 2.0
"""A longer gap between two rounds means that this process was paused, and the leader was not silent."""
RETRY_SECONDS = 1.0
"""How long the leader's answer may take before the host reconnects. Doubled each time, for networks with long
delays."""
PAUSE_SECONDS = 0.2
"""Seconds between two attempts to reconnect if the network is down."""
LONGEST_PAUSE_SECONDS = 1.0
"""The most seconds between two attempts to find the leader."""
CLOSE_SECONDS = 2.0

Inbox = SignalSafeQueue[Message]


def listen(rendezvous: str, address: str) -> socket.socket:
    """Open the leader's socket.

    Args:
        rendezvous: ``host:port``, or the path of a file to write the address to, which only its owner can read.
        address: this host's address, for hosts that read the file.

    Raises:
        PlatformError: the port is in use.
    """
    if "/" not in rendezvous:
        return _bind("", int(rendezvous.rpartition(":")[2]))
    listener = _bind(address, 0)
    from cloudtrain.storage.atomic import write_private  # only few hosts need it

    write_private(Path(rendezvous), f"{address}:{listener.getsockname()[1]}")
    return listener


def _bind(address: str, port: int) -> socket.socket:
    try:
        return create_server(address, port, BACKLOG)
    except OSError as error:
        raise PlatformError(
            f"the leader cannot listen on port {port}: {error.strerror}",
            hint="Choose another port, or end the program that uses this one.",
        ) from None


class JoinInterrupted(PlatformError):
    """A signal arrived before the leader was found."""


class LeaderNotFound(PlatformError):
    """The leader was not found in time.

    Attributes:
        is_unreachable: whether packets to its address are lost. If not, it has not started, or is of another attempt.
    """

    is_unreachable = False


class _Refused(PlatformError):
    """The leader refuses this host.

    Attributes:
        may_retry: whether the next leader may accept the host.
    """

    may_retry = False


class LeaderClient:
    """Exchanges messages with the leader, in a thread; puts the leader's messages into ``inbox``.

    After a network outage it reconnects, and no message is lost. Once the leader has ended, or is silent for too long,
    it puts ``{"type": "lost", "why": ...}`` into the inbox.

    Args:
        host: this host's name.
        rendezvous: see `listen`.
        keys: the job's keys for ``control``, ``spawn`` and ``tls``.
        host_timeout: the seconds without a message after which the leader is lost.
        restarts: whether the platform restarts all hosts after a failure. If so, the first leader found may be that of
            an attempt that is ending, or another program may have taken its address.
    """

    def __init__(
        self,
        host: str,
        rendezvous: str,
        keys: Mapping[str, bytes],
        inbox: Inbox,
        host_timeout: float = Settings.host_timeout,
        *,
        restarts: bool = False,
    ) -> None:
        self._host, self._rendezvous, self._keys = host, rendezvous, keys
        self._inbox = inbox
        self._timeout = host_timeout
        self._restarts = restarts
        self._leader: dict[str, str] = {}
        """The number of the leader that has accepted this host."""
        self._number = os.urandom(16).hex()
        self._conversation = Conversation()
        self._outbox: deque[Message] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._peer: Peer | None = None
        self._candidate: Peer | None = None
        """A connection on which the leader has not answered yet."""
        self._answer_seconds = RETRY_SECONDS
        self._moved_until = 0.0
        """Until this time, the leader may close the old connection because it has accepted a new one."""
        self._address = ""
        self._tried = rendezvous
        """The leader's address, or the file that will contain it."""
        self._is_unreachable = False
        """Whether the leader's address did not respond at all, not even with a refusal."""
        self._heard = 0.0
        self._closing = False
        self.on_taken: Callable[[int], None] | None = None
        """Called in the client's thread with the number of bytes of this host's output that the leader has printed."""
        self._thread = threading.Thread(target=self._run, name="leader-client", daemon=True)

    @classmethod
    def join(
        cls,
        host: str,
        rendezvous: str,
        keys: Mapping[str, bytes],
        inbox: Inbox,
        timeout: float = Settings.join_timeout,
        host_timeout: float = Settings.host_timeout,
        *,
        restarts: bool = False,
    ) -> LeaderClient:
        """Find the leader and join the job.

        Raises:
            JoinInterrupted: a message that ends this host arrived in ``inbox`` first.
            LeaderNotFound: the leader was not found within ``timeout`` seconds.
            PlatformError: the leader has another job secret, or refuses this host.
        """
        client = cls(host, rendezvous, keys, inbox, host_timeout, restarts=restarts)
        try:
            client._find(time.monotonic() + timeout, timeout)
        except BaseException:
            client._release()
            raise
        client._thread.start()
        return client

    def write_spawn_address(self, path: Path) -> None:
        """Write the data that mpirun's remote shell needs to a file that only its owner can read.

        These are the leader's ``address:port``, the key for ``spawn``, and the leader's certificate.
        """
        from cloudtrain.link.tls import make_certificate  # only mpirun on several hosts needs it
        from cloudtrain.storage.atomic import write_private

        certificate = make_certificate(self._keys["tls"]).der
        write_private(path, f"{self._address} {self._keys['spawn'].hex()} {certificate.hex()}")

    def send(self, message: Message) -> None:
        """Send a message. Never waits or raises: if the leader has ended, ``lost`` arrives in the inbox."""
        self._outbox.append(message)
        self._wake()

    @property
    def is_connected(self) -> bool:
        """Whether the leader is not lost. Its answer may be late."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Send the remaining messages, and disconnect."""
        self._closing = True
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the buffer is full, so the thread is awake already
            self._wake_writer.send(b"x")

    def _find(self, deadline: float, timeout: float) -> None:
        """Try to join until ``deadline``. Raises the errors of `join`."""
        deceived_since: float | None = None
        waiting = Waiting(timeout)
        began = time.monotonic()
        while True:
            try:
                self._enter(min(time.monotonic() + PROVE_SECONDS, max(deadline, time.monotonic() + 1)))
                return
            except NotAuthenticated:
                now = time.monotonic()
                deceived_since = deceived_since or now
                patience = timeout if self._restarts else IMPOSTOR_SECONDS
                if now > min(deadline, deceived_since + patience):
                    raise PlatformError(
                        f"{self._host}: the process that answers at {self._rendezvous} does not know the secret of "
                        "this job",
                        hint="Give all hosts the same CLOUDTRAIN_SECRET. If they have it, another program or job"
                        " listens there: end it, or choose another port with CLOUDTRAIN_RENDEZVOUS.",
                    ) from None
            except _Refused as error:
                if not error.may_retry:
                    raise
                deceived_since = None
                self._give_up_after(deadline, timeout, error)
            except (OSError, ValueError) as error:
                deceived_since = None
                self._give_up_after(deadline, timeout, error)
            silent = ", which does not answer: is a firewall between the hosts?" * self._is_unreachable
            waiting.report(f"the leader at {self._tried}{silent}")
            if self._is_asked_to_end():
                raise JoinInterrupted(f"{self._host}: stopped before the leader was found")
            time.sleep(_pause(time.monotonic() - began))

    def _is_asked_to_end(self) -> bool:
        """Whether a message in the inbox ends this host. Other messages, such as a notice, stay in the inbox."""
        messages = [self._inbox.get() for _ in range(self._inbox.qsize())]
        for message in messages:
            self._inbox.put(message)
        return any(message["type"] in ("signal", "orphaned") for message in messages)

    def _give_up_after(self, deadline: float, timeout: float, error: Exception) -> None:
        """Raises LeaderNotFound after the deadline."""
        if time.monotonic() <= deadline:
            return
        not_found = LeaderNotFound(
            f"{self._host}: the leader was not found at {self._tried} within {timeout:.0f} s: {error}",
            hint="Check that the first host has started, and that the other hosts can reach its port. If it starts "
            "later than that, raise join_timeout.",
        )
        not_found.is_unreachable = self._is_unreachable
        raise not_found from None

    # -- the thread

    def _run(self) -> None:
        why = self._serve()
        self._release()
        self._inbox.put({"type": "lost", "why": why})

    def _release(self) -> None:
        for peer in filter(None, (self._peer, self._candidate)):
            peer.close()
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _serve(self) -> str:
        """Exchange messages until the leader has ended or this host disconnects. Returns the reason."""
        retry = min(RECONNECT_SECONDS, self._timeout / 3)
        next_try = 0.0
        close_by: float | None = None
        last_round = self._heard = time.monotonic()
        while True:
            try:
                why = self._round(0.5)
            except PlatformError as error:
                why = error.message
            if why:
                return why
            now = time.monotonic()
            if now - last_round > PAUSED_SECONDS:
                self._heard += now - last_round  # this process was paused: the leader was not silent
            if self._closing:
                close_by = close_by or now + CLOSE_SECONDS
                if self._peer is None or self._peer.is_idle or now > close_by:
                    return "this host has disconnected"
            silence = now - self._heard
            if silence > self._timeout:
                return f"no message for {self._timeout:g} s"
            if (self._peer is None or silence > retry) and now > next_try and not self._closing:
                pause = PAUSE_SECONDS
                if self._candidate:
                    self._answer_seconds = min(2 * self._answer_seconds, max(RETRY_SECONDS, retry))
                with contextlib.suppress(PlatformError, OSError, ValueError):
                    self._connect(now + CONNECT_SECONDS + RETRY_SECONDS)
                    pause = self._answer_seconds
                next_try = time.monotonic() + pause
            last_round = time.monotonic()

    def _round(self, timeout: float) -> str:
        """Handle incoming data. Returns why the leader is lost; empty if it is not. Raises _Refused."""
        for key, mask in self._selector.select(timeout):
            if key.data is None:
                self._take_outbox()
            elif not key.data.closed:
                why = self._receive(key.data, mask)
                if why:
                    return why
        return ""

    def _take_outbox(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(1 << 12)
        while self._outbox:
            envelope = self._conversation.write(json.dumps(self._outbox.popleft()).encode())
            if self._peer:
                self._peer.send(envelope)

    def _receive(self, peer: Peer, mask: int) -> str:
        try:
            for envelope in peer.handle(mask):
                self._heard = time.monotonic()
                data = self._conversation.read(envelope)
                if data is not None:
                    self._take(peer, json.loads(data))
        except (EOFError, ConnectionError):
            if peer is self._peer and self._candidate is None and time.monotonic() > self._moved_until:
                return "its connection was closed"
            self._drop(peer)
        except OSError:  # the network is down
            self._drop(peer)
        except (ValueError, LookupError, TypeError) as error:
            return f"it sent an invalid message: {error!r}"
        return ""

    def _take(self, peer: Peer, message: Message) -> None:
        kind = message["type"]
        if kind == "beat":
            peer.send(self._conversation.write_fleeting(b'{"type": "beat"}'))
        elif kind == "refused":
            refused = _Refused(
                f"{self._host}: the leader refuses this host: {message['why']}",
                hint="Start one runtime for each host, all of the same job.",
            )
            refused.may_retry = self._restarts and bool(message.get("retry"))
            raise refused
        elif kind == "joined":
            old, self._peer, self._candidate = self._peer, peer, None
            self._answer_seconds, self._moved_until = RETRY_SECONDS, 0.0
            self._leader = {"leader": message["leader"]}
            if old:
                old.close()
            peer.send(self._conversation.write_fleeting(b'{"type": "beat"}'))
            for envelope in self._conversation.resume(message["received"]):
                peer.send(envelope)
        elif kind == "taken":
            if self.on_taken:
                self.on_taken(message["count"])
        else:
            self._inbox.put(message)

    def _drop(self, peer: Peer) -> None:
        peer.close()
        if peer is self._candidate:
            self._candidate = None
        else:
            self._peer = None

    def _enter(self, deadline: float) -> None:
        """Join for the first time. Raises _Refused, and the errors of `_connect`."""
        self._connect(deadline)
        while self._candidate and time.monotonic() < deadline:
            self._round(0.1)
        if self._peer is None:
            if self._candidate:
                self._drop(self._candidate)
            raise ConnectionResetError("the leader did not answer")

    def _connect(self, deadline: float) -> None:
        """Connect, and request to join or rejoin. The answer arrives later.

        Args:
            deadline: when to give up, on the clock of `time.monotonic`.

        Raises:
            NotAuthenticated: the leader's address belongs to another process.
            OSError, ValueError: there is no leader, or the network is down.
        """
        if self._candidate:
            self._drop(self._candidate)
        self._is_unreachable, self._tried = False, self._rendezvous
        self._tried = _read_address(self._rendezvous)
        host, _, port = self._tried.rpartition(":")
        host = host.strip("[]")  # an IPv6 address
        seconds = max(0.01, min(CONNECT_SECONDS, deadline - time.monotonic()))
        try:
            where: Any = plain(host), int(port)
            connection = socket.create_connection(where, timeout=seconds)
        except socket.timeout:  # not a TimeoutError on Python 3.9
            self._is_unreachable = True
            raise
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address, port_number, *_ = connection.getpeername()
            encrypted = not is_loopback(address)
            purpose = f"control{ENCRYPTED}" if encrypted else "control"
            keys = prove(connection, self._keys["control"], purpose, deadline)
            tls = self._tls() if encrypted else None
        except BaseException:
            connection.close()
            raise
        self._address = f"{address}:{port_number}"
        self._candidate = Peer(connection, keys, self._selector, tls=tls)
        received = self._conversation.received
        join = {
            "type": "join",
            "host": self._host,
            "number": self._number,
            "received": received,
            **self._leader,
        }
        self._candidate.send(self._conversation.write_fleeting(json.dumps(join).encode()))
        self._moved_until = time.monotonic() + self._timeout

    def _tls(self) -> Tls:
        from cloudtrain.link.tls import (
            Tls,
            make_certificate,  # not needed by a job on one machine
        )

        return Tls(certificate=make_certificate(self._keys["tls"]).der)


def _pause(waited: float) -> float:
    """Seconds until the next attempt to find the leader. They grow, to reduce the load on the name server."""
    return min(LONGEST_PAUSE_SECONDS, 0.05 + waited / 20) * random.uniform(0.5, 1.0)


def _read_address(rendezvous: str) -> str:
    return Path(rendezvous).read_text() if "/" in rendezvous else rendezvous
