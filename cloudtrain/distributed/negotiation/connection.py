"""The connection of ranks 1 and up to the `Coordinator` on rank 0, and the `Reader` that both ends use."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from typing import Any, Callable, Protocol

from cloudtrain._system.memory import connect
from cloudtrain._system.processes import after_fork_in_child
from cloudtrain._system.sockets import input_waiter
from cloudtrain.distributed.negotiation.messages import (
    ALL_POSITIONS,
    ASK_POSITIONS,
    BYE,
    HELLO,
    LOST,
    MESSAGE_BYTES,
    NUMBERS,
    POSITION,
    POSITION_SECONDS,
    READ_BYTES,
    RESPONSE,
    TIME,
    CollectiveRequest,
    CollectiveResponse,
    KnownNumbers,
    Unpacker,
    pack,
    unpack_response,
)
from cloudtrain.link.handshake import prove
from cloudtrain.observe.timeline.clock import Exchange, clock

TICK_SECONDS = 0.5
"""The longest time that one read waits for input."""
PURPOSE = "ranks"
"""The purpose of the handshake (see `cloudtrain.link.handshake`)."""
Address = tuple[str, int]
"""A host and its port, or the name of a socket of this machine and `NAMED`."""
NAMED = 0
ATTEMPT_SECONDS = 5.0
RETRY_SECONDS = 0.05
REST_SECONDS = 0.001
"""How long the background thread sleeps while another thread reads, and how soon it resumes after that."""


class Client(Protocol):
    """The methods of `NegotiationClient` that a connection calls."""

    def deliver(self, response: CollectiveResponse) -> None:
        """Take a response to this rank; called in order."""

    def lose(self, rank: int, why: str, died: bool = True) -> None:
        """Record that a rank has ended."""

    def position(self) -> Any:
        """This rank's position (see `SequenceNumbers.position`)."""


class CoordinatorConnection:
    """Sends requests to the coordinator and handles its messages, for ``client``.

    Raises:
        NotAuthenticated: the coordinator does not have the key.
        OSError: the coordinator is unreachable.
    """

    def __init__(
        self,
        address: Address,
        key: bytes,
        rank: int,
        client: Client,
        *,
        timeout: float,
        spin: float = 0.0,
    ) -> None:
        self._client = client
        self._connection = _connect(address, key, time.monotonic() + timeout)
        self._lock = threading.Lock()
        self._closing = False
        self._positions: dict[int, Any] = {}
        self._positions_received = threading.Event()
        self._exchange: Exchange | None = None
        self._time_received = threading.Event()
        self._closed = False
        self._unpacker = Unpacker(MESSAGE_BYTES)
        self._numbers = KnownNumbers()
        self._bye = False
        self._wait_for_input = input_waiter(self._connection)
        self._send(pack(HELLO, rank))
        close_on_fork(self)
        self._reader = Reader(self._read, "cloudtrain-negotiation", spin)

    def announce(self, request: CollectiveRequest) -> None:
        self._send(self._numbers.pack(request))

    def ask_time(self) -> Exchange | None:
        """Exchange clock times with rank 0 once; None if it does not answer in time. Not thread-safe."""
        self._exchange = None
        self._time_received.clear()
        if not self._closed:
            self._send(pack(TIME, clock()))
            self._time_received.wait(POSITION_SECONDS)
        return self._exchange

    def close_in_child(self) -> None:
        """Close the inherited connection in a forked child without notifying the coordinator."""
        self._connection.close()

    def drive(self, done: Callable[[], bool], deadline: float) -> bool:
        """See `Reader.drive`."""
        return self._reader.drive(done, deadline)

    def positions(self) -> dict[int, Any]:
        """The position of every rank that answers in time, by rank."""
        self._positions_received.clear()
        self._positions = {}
        self._send(pack(ASK_POSITIONS, None))
        self._positions_received.wait(2 * POSITION_SECONDS)
        return self._positions

    def close(self) -> None:
        """Notify the coordinator that this rank shuts down, and close the connection."""
        self._closing = True
        self._send(pack(BYE, None))
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.stop()
        self._connection.close()

    def _send(self, data: bytes) -> None:
        # A lost coordinator is detected by the end of its stream.
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def _read(self, timeout: float) -> bool:
        """Handle the coordinator's messages; False at the end of the stream."""
        if not self._wait_for_input(timeout):
            return True
        why = "has shut down" if self._bye else "has died: its connection was closed"
        data = b""
        try:
            data = self._connection.recv(READ_BYTES)
            received_at = clock()
            for kind, content, payload in self._unpacker.feed(data):
                if kind == NUMBERS:
                    for response in self._numbers.responses(content, payload):
                        self._client.deliver(response)
                elif kind == RESPONSE:
                    response = unpack_response(content, payload)
                    self._numbers.learn(response)
                    self._client.deliver(response)
                elif kind == LOST:
                    self._client.lose(*content)
                    self._closing = (
                        self._closing or content[0] == 0
                    )  # rank 0 has sent why it closes the connection
                elif kind == ASK_POSITIONS:
                    self._send(pack(POSITION, self._client.position()))
                elif kind == ALL_POSITIONS:
                    self._positions = dict(content)
                    self._positions_received.set()
                elif kind == TIME:
                    self._exchange = (*content, received_at)
                    self._time_received.set()
                elif kind == BYE:
                    self._bye = True
        except OSError:
            data = b""
        except Exception as error:
            data, why = b"", f"sent an invalid message: {error!r}"
        if not data:
            self._closed = True
            self._time_received.set()
        if not data and not self._closing:
            self._client.lose(0, why)
        return bool(data)


def _connect(address: Address, key: bytes, deadline: float) -> socket.socket:
    """A connection to the coordinator, once both ends have proved themselves.

    Raises:
        NotAuthenticated: the other end does not have the key.
        OSError: no process listens, or the deadline has passed.
    """
    while True:
        connection = _reach(address, deadline)
        try:
            prove(connection, key, PURPOSE, min(deadline, time.monotonic() + ATTEMPT_SECONDS))
            return connection
        except OSError:  # other connections filled the gate: retry
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        except BaseException:
            connection.close()
            raise


def _reach(address: Address, deadline: float) -> socket.socket:
    """A connection to the process that listens. Raises OSError."""
    while True:
        left = max(deadline - time.monotonic(), 0.01)
        if address[1] != NAMED:
            connection = socket.create_connection(address, timeout=left)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        try:
            return connect(address[0], left)
        except BlockingIOError:  # its backlog is full
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


class Reader:
    """Calls ``read`` repeatedly until `stop`, from one thread at a time.

    That is the thread that waits for a message, or else a background thread: handing a message from one thread to
    another takes longer than receiving it.

    Args:
        read: waits for input for at most the given number of seconds and handles it; False ends the reader.
        name: the name of the background thread.
        spin: seconds for which a waiting thread polls for input before it sleeps (see `spin_seconds`).
    """

    def __init__(self, read: Callable[[float], bool], name: str, spin: float = 0.0) -> None:
        self._read = read
        self._spin = spin
        self._reading = threading.Lock()
        self._last_driven = float("-inf")
        self._running = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def drive(self, done: Callable[[], bool], deadline: float) -> bool:
        """Read in this thread until ``done()`` or ``deadline``. Returns False immediately if another thread reads."""
        if not self._running or not self._reading.acquire(blocking=False):
            self._last_driven = (
                time.monotonic()
            )  # the background thread rests, so that this one can read next time
            return False
        try:
            now = time.monotonic()
            awake = min(now + self._spin, deadline)
            while self._running and now < deadline and not done():
                self._running = self._read(0.0 if now < awake else min(deadline - now, TICK_SECONDS))
                now = time.monotonic()
        finally:
            self._last_driven = time.monotonic()
            self._reading.release()
        return True

    def stop(self) -> None:
        """Start no further read. The caller must provide some input to make a read in progress return."""
        self._running = False
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while self._running:
            if time.monotonic() - self._last_driven < REST_SECONDS or self._reading.locked():
                time.sleep(REST_SECONDS)
                continue
            with self._reading:
                if self._running:
                    self._running = self._read(TICK_SECONDS)


class ClosableInChild(Protocol):
    def close_in_child(self) -> None: ...


_open: weakref.WeakSet[ClosableInChild] = weakref.WeakSet()


def close_on_fork(connection: ClosableInChild) -> None:
    """Call ``connection.close_in_child`` in every child forked from now on.

    Forked children, such as data loader workers, inherit connections. While a child holds one open, the other ranks
    cannot detect that its parent died.
    """
    _open.add(connection)


def _close_all() -> None:
    for connection in list(_open):
        connection.close_in_child()


after_fork_in_child(_close_all)
