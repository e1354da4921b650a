"""Receives the requests of all ranks on rank 0, and responds to them in one order."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Callable

from cloudtrain.distributed.negotiation.connection import PURPOSE, TICK_SECONDS, Client, Reader, close_on_fork
from cloudtrain.distributed.negotiation.matcher import Combine, Matcher, RankResponse
from cloudtrain.distributed.negotiation.messages import (
    ALL_POSITIONS,
    ASK_POSITIONS,
    BYE,
    HELLO,
    HELLO_BYTES,
    LOST,
    MESSAGE_BYTES,
    NUMBERS,
    POSITION,
    POSITION_SECONDS,
    READ_BYTES,
    REQUEST,
    TIME,
    CollectiveRequest,
    CollectiveResponse,
    Unpacker,
    pack,
    pack_response,
    unpack_request,
)
from cloudtrain.distributed.options import logger
from cloudtrain.link.authentication import Gate
from cloudtrain.observe.timeline.clock import Exchange, clock


@dataclass
class _RankConnection:
    """The connection of another rank, which has proved that it has the key."""

    connection: socket.socket
    rank: int | None = None
    unpacker: Unpacker = field(default_factory=lambda: Unpacker(HELLO_BYTES))
    outgoing: list[bytes] = field(default_factory=list)
    """Messages to send at the end of the turn."""

    def send(self, data: bytes) -> None:
        # A lost rank is detected by the end of its stream.
        with contextlib.suppress(OSError):
            self.connection.sendall(data)


class Coordinator:
    """Matches the requests of all ranks. Rank 0 itself calls the methods directly.

    Args:
        listener: a listening socket; `close` closes it.
        key: ranks prove that they have it.
        size: the number of ranks.
        combine: see `Matcher`.
        client: the client of rank 0 itself.
        timeout: seconds that an operation may wait for ranks.
        warn_after: seconds after which a waiting operation is logged.
        spin: see `Reader`.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        size: int,
        combine: Combine,
        client: Client,
        *,
        timeout: float,
        warn_after: float,
        spin: float = 0.0,
    ) -> None:
        self._size = size
        self._matcher = Matcher(size, combine)
        self._client = client
        self._timeout, self._warn_after = timeout, warn_after
        self._ranks: dict[int, _RankConnection] = {}
        self._seen: set[int] = set()
        """All ranks that were ever connected. None of them may connect again."""
        self._lock = threading.RLock()
        self._turns = 0
        self._outgoing: list[_RankConnection] = []
        """Those with messages to send at the end of the turn."""
        self._own: list[CollectiveResponse] = []
        """Responses to deliver to rank 0 at the end of the turn."""
        self._positions: dict[int, Any] = {}
        self._asked_at = float("-inf")
        """When the positions of the ranks were last requested; -inf once all have answered."""
        self._askers: list[tuple[float, int]] = []
        """Ranks that requested all positions, each with the time until which it waits for an answer."""
        self._answered = threading.Condition(self._lock)
        self._closing = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._gate = Gate(listener, {PURPOSE: key}, self._selector)
        self._last_tick = time.monotonic()
        close_on_fork(self)
        self._reader = Reader(self._read, "cloudtrain-coordinator", spin)

    # -- called by rank 0

    def announce(self, request: CollectiveRequest) -> None:
        with self._turn():
            self._respond(self._matcher.announce(0, request, time.monotonic()))

    def ask_time(self) -> Exchange:
        """Rank 0's clock is the reference."""
        now = clock()
        return now, now, now

    def positions(self) -> dict[int, Any]:
        """The position of every rank that answers in time, by rank."""
        with self._lock:
            with self._turn():
                self._ask_positions()
            self._answered.wait_for(self._all_answered, POSITION_SECONDS)
            return dict(self._positions)

    def close(self) -> None:
        """Notify the other ranks that rank 0 shuts down, and close all connections."""
        with self._turn():
            self._closing = True
            self._send_positions(float("inf"))
            for peer in self._ranks.values():
                self._send(peer, pack(BYE, 0))
        self._wake_writer.send(b"x")
        self._reader.stop()
        self._gate.close()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._wake_writer.close()

    def close_in_child(self) -> None:
        """Close the inherited connections in a forked child without notifying the other ranks."""
        for key in list((self._selector.get_map() or {}).values()):  # None once it is closed
            key.fileobj.close()  # type: ignore[union-attr]

    def drive(self, done: Callable[[], bool], deadline: float) -> bool:
        """See `Reader.drive`."""
        return self._reader.drive(done, deadline)

    # -- messages of the other ranks

    def _read(self, timeout: float) -> bool:
        events = self._selector.select(timeout)
        if not events and not timeout:
            return True
        with self._turn():
            # Read from all ranks before responding: simultaneous requests then take one message to each rank.
            ended = [
                key.data
                for key, _ in events
                if isinstance(key.data, _RankConnection) and not self._receive(key.data)
            ]
        for peer in ended:
            self._selector.unregister(peer.connection)
            peer.connection.close()
        for admitted in self._gate.admit(key.fileobj for key, _ in events if key.data is self._gate):
            admitted.socket.setblocking(True)
            self._selector.register(admitted.socket, selectors.EVENT_READ, _RankConnection(admitted.socket))
        now = time.monotonic()
        if now - self._last_tick > TICK_SECONDS:
            self._last_tick = now
            self._tick(now)
        return not self._closing

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock, and send messages at the end; to rank 0 last, so that the others do not wait for it."""
        with self._lock:
            self._turns += 1
            try:
                yield
            finally:
                self._turns -= 1
                if not self._turns:
                    self._end_turn()

    def _end_turn(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for peer in outgoing:
            messages, peer.outgoing = peer.outgoing, []
            peer.send(b"".join(messages))
        own, self._own = self._own, []
        for response in own:
            self._client.deliver(response)

    def _send(self, peer: _RankConnection, data: bytes) -> None:
        if not peer.outgoing:
            self._outgoing.append(peer)
        peer.outgoing.append(data)

    def _receive(self, peer: _RankConnection) -> bool:
        """Handle what a rank sent; False when the connection is finished."""
        try:
            data = peer.connection.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            if peer.rank is not None:
                self._lost(peer.rank, "has died: its connection was closed")
            return False
        try:
            for kind, content, payload in peer.unpacker.feed(data):
                if not self._handle(peer, kind, content, payload):
                    return False
        except Exception as error:  # not a rank, or a faulty one: the other ranks must not suffer from it
            if peer.rank is not None:
                self._lost(peer.rank, f"sent an invalid message: {error!r}")
            return False
        return True

    def _handle(self, peer: _RankConnection, kind: str, content: Any, payload: bytes | None) -> bool:
        if peer.rank is None:
            return kind == HELLO and self._admit(peer, content)
        if kind == NUMBERS:
            now = time.monotonic()
            for number in content:
                request = self._matcher.numbers.request(number, payload)
                self._respond(self._matcher.announce(peer.rank, request, now))
        elif kind == REQUEST:
            request = unpack_request(content, payload)
            self._respond(self._matcher.announce(peer.rank, request, time.monotonic()))
        elif kind == TIME:
            peer.send(pack(TIME, [content, clock()]))  # immediately, because it measures time
        elif kind == ASK_POSITIONS:
            self._askers.append((time.monotonic() + POSITION_SECONDS, peer.rank))
            self._ask_positions()
        elif kind == POSITION:
            self._positions[peer.rank] = content
            self._answered.notify_all()
            if self._all_answered():
                self._asked_at = float("-inf")
                self._send_positions(time.monotonic() + POSITION_SECONDS)
        elif kind == BYE:
            self._lost(peer.rank, "has shut down", died=False)
            return False
        return True

    def _admit(self, peer: _RankConnection, rank: Any) -> bool:
        """Accept a connection as that of ``rank``; False if it cannot be that rank."""
        if type(rank) is not int or not 0 < rank < self._size or rank in self._seen:
            why = f"refused this process: rank {rank} is here already, or does not exist"
            self._send(peer, pack(LOST, [0, why, True]))
            return False
        peer.rank = rank
        self._seen.add(rank)
        self._ranks[rank] = peer
        peer.unpacker.limit = MESSAGE_BYTES
        return True

    def _respond(self, responses: list[RankResponse]) -> None:
        last, packed = None, b""
        for rank, response in responses:
            if rank == 0:
                self._own.append(response)
            elif rank in self._ranks:
                if response is not last:  # most ranks get the same response
                    last, packed = response, pack_response(response)
                self._send(self._ranks[rank], packed)

    def _lost(self, rank: int, why: str, died: bool = True) -> None:
        self._ranks.pop(rank, None)
        self._client.lose(rank, why, died)
        for peer in self._ranks.values():
            self._send(peer, pack(LOST, [rank, why, died]))
        self._respond(self._matcher.leave(rank, why))

    def _all_answered(self) -> bool:
        return len(self._positions) > len(self._ranks)

    def _ask_positions(self) -> None:
        now = time.monotonic()
        if now - self._asked_at < POSITION_SECONDS:
            return  # the answers to the last request are still arriving
        self._asked_at = now
        self._positions = {0: self._client.position()}
        for peer in self._ranks.values():
            self._send(peer, pack(ASK_POSITIONS, None))

    def _send_positions(self, deadline: float) -> None:
        """Send the known positions to the ranks that wait no longer than ``deadline``."""
        positions = sorted(self._positions.items())
        for until, rank in self._askers:
            if until <= deadline and rank in self._ranks:
                self._send(self._ranks[rank], pack(ALL_POSITIONS, positions))
        self._askers = [(until, rank) for until, rank in self._askers if until > deadline]

    def _tick(self, now: float) -> None:
        with self._turn():
            self._send_positions(now)
            for line in self._matcher.stalled(now - self._warn_after):
                logger.warning("waiting for %g s: %s", self._warn_after, line)
            self._respond(self._matcher.overdue(now - self._timeout))
