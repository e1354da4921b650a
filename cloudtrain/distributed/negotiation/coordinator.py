"""Rank 0's end: listens to all ranks, and answers them in one order."""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable

from cloudtrain.distributed.negotiation.matcher import Answer, Combine, Matcher
from cloudtrain.distributed.negotiation.messages import (
    CollectiveRequest,
    CollectiveResponse,
    Unpacker,
    pack,
    pack_response,
    unpack_request,
)
from cloudtrain.distributed.negotiation.reader import TICK_SECONDS, Reader, close_on_fork
from cloudtrain.distributed.options import logger
from cloudtrain.observe.timeline.clock import Exchange, clock

ASK_SECONDS = 2.0
"""How long ranks may take to say where they are."""
HELLO_BYTES = 1024
"""The most that anybody may send before it is known to be a rank."""
BYE, LOST, WHERE, HERE, PLACES, TIME = "bye", "lost", "where", "here", "positions", "time"


@dataclass
class _RankConnection:
    """One of the other ranks, as rank 0 sees it."""

    connection: socket.socket
    rank: int | None = None
    unpacker: Unpacker = field(default_factory=lambda: Unpacker(HELLO_BYTES))

    def send(self, data: bytes) -> None:
        # a rank that is gone is noticed by the end of its stream
        with contextlib.suppress(OSError):
            self.connection.sendall(data)


class Coordinator:
    """Matches the requests of all ranks. Rank 0's own come by method calls.

    Args:
        listener: bound and listening; closed by `close`.
        token: what a rank has to know to be heard.
        size: the number of ranks.
        combine: see `Matcher`.
        deliver: takes the responses for rank 0 itself, in order.
        lose: is told of a rank that has ended, why, and whether it died (see `NegotiationClient.lose`).
        position: says where rank 0 is (see `SequenceNumbers.position`).
        timeout: seconds that an operation may wait for ranks.
        warn_after: seconds after which the log tells of one that waits.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        size: int,
        combine: Combine,
        *,
        deliver: Callable[[CollectiveResponse], None],
        lose: Callable[..., None],
        position: Callable[[], Any],
        timeout: float,
        warn_after: float,
    ) -> None:
        self._listener = listener
        self._token = token
        self._matcher = Matcher(size, combine)
        self._deliver, self._lose, self._position = deliver, lose, position
        self._timeout, self._warn_after = timeout, warn_after
        self._members: dict[int, _RankConnection] = {}
        self._lock = threading.RLock()
        self._positions: dict[int, Any] = {}
        self._asked_at = float("-inf")
        """When all were asked for their positions; long ago once all have told."""
        self._askers: list[tuple[float, int]] = []
        self._answered = threading.Condition(self._lock)
        self._closing = False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._last_tick = time.monotonic()
        close_on_fork(self)
        self._reader = Reader(self._turn, "cloudtrain-coordinator")

    # -- rank 0's own calls

    def announce(self, request: CollectiveRequest) -> None:
        with self._lock:
            self._answer(self._matcher.announce(0, request, time.monotonic()))

    def ask_time(self) -> Exchange:
        """This rank's time is that of all."""
        now = clock()
        return now, now, now

    def positions(self) -> dict[int, Any]:
        """Where every rank is that answers in time, by rank."""
        with self._lock:
            self._ask()
            self._answered.wait_for(self._all_told, ASK_SECONDS)
            return dict(self._positions)

    def close(self) -> None:
        """Tell the others that rank 0 is done, and stop."""
        with self._lock:
            self._closing = True
            self._tell_positions(float("inf"))
            for member in self._members.values():
                member.send(pack(BYE, 0))
        self._wake_writer.send(b"x")
        self._reader.stop()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._wake_writer.close()

    def close_in_child(self) -> None:
        """Close the connections without a word: in a child that was forked, where they are not its own."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]

    def drive(self, over: Callable[[], bool], deadline: float) -> bool:
        """See `Reader.drive`."""
        return self._reader.drive(over, deadline)

    # -- what comes in

    def _turn(self, timeout: float) -> bool:
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._listener:
                with contextlib.suppress(OSError):
                    connection, _ = self._listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._selector.register(connection, selectors.EVENT_READ, _RankConnection(connection))
            elif key.data is not None and not self._receive(key.data):
                self._selector.unregister(key.fileobj)
                key.data.connection.close()
        now = time.monotonic()
        if now - self._last_tick > TICK_SECONDS:
            self._last_tick = now
            self._tick(now)
        return not self._closing

    def _receive(self, member: _RankConnection) -> bool:
        """Handle what a rank sent; False when there is no more to come."""
        try:
            data = member.connection.recv(1 << 18)
        except OSError:
            data = b""
        with self._lock:
            if not data:
                if member.rank is not None:
                    self._lost(member.rank, "has died: its connection is closed")
                return False
            try:
                for kind, content, payload in member.unpacker.feed(data):
                    if not self._handle(member, kind, content, payload):
                        return False
            except Exception as error:  # not one of ours; or else its own fault, and not that of the others
                if member.rank is not None:
                    self._lost(member.rank, f"has sent what cannot be understood: {error!r}")
                return False
        return True

    def _handle(self, member: _RankConnection, kind: str, content: Any, payload: bytes | None) -> bool:
        if member.rank is None:
            rank, token = content
            if kind != "hello" or not hmac.compare_digest(token, self._token):
                return False
            member.rank = rank
            self._members[rank] = member
            member.unpacker.limit = None
        elif kind == "request":
            request = unpack_request(content, payload)
            self._answer(self._matcher.announce(member.rank, request, time.monotonic()))
        elif kind == TIME:
            member.send(pack(TIME, [content, clock()]))
        elif kind == WHERE:
            self._askers.append((time.monotonic() + ASK_SECONDS, member.rank))
            self._ask()
        elif kind == HERE:
            self._positions[member.rank] = content
            self._answered.notify_all()
            if self._all_told():
                self._asked_at = float("-inf")
                self._tell_positions(time.monotonic() + ASK_SECONDS)
        elif kind == BYE:
            self._lost(member.rank, "has shut down", died=False)
            return False
        return True

    def _answer(self, answers: list[Answer]) -> None:
        """Send first, start here after that: the others need not wait for this rank."""
        for rank, response in answers:
            if rank in self._members:
                self._members[rank].send(pack_response(response))
        for rank, response in answers:
            if rank == 0:
                self._deliver(response)

    def _lost(self, rank: int, why: str, died: bool = True) -> None:
        self._members.pop(rank, None)
        self._lose(rank, why, died)
        for member in self._members.values():
            member.send(pack(LOST, [rank, why, died]))
        self._answer(self._matcher.leave(rank, why))

    def _all_told(self) -> bool:
        return len(self._positions) > len(self._members)

    def _ask(self) -> None:
        now = time.monotonic()
        if now - self._asked_at < ASK_SECONDS:
            return  # the answers are on their way
        self._asked_at = now
        self._positions = {0: self._position()}
        for member in self._members.values():
            member.send(pack(WHERE, None))

    def _tell_positions(self, by: float) -> None:
        """Answer those who asked and have waited until ``by``."""
        positions = sorted(self._positions.items())
        for deadline, rank in self._askers:
            if deadline <= by and rank in self._members:
                self._members[rank].send(pack(PLACES, positions))
        self._askers = [(deadline, rank) for deadline, rank in self._askers if deadline > by]

    def _tick(self, now: float) -> None:
        with self._lock:
            self._tell_positions(now)
            for line in self._matcher.stalled(now - self._warn_after):
                logger.warning("waiting for %g s: %s", self._warn_after, line)
            self._answer(self._matcher.overdue(now - self._timeout))
