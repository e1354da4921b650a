"""The connection of ranks 1 and up to the `Coordinator` on rank 0."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Any, Callable

from cloudtrain.distributed.negotiation.messages import (
    ALL_POSITIONS,
    ASK_POSITIONS,
    BYE,
    HELLO,
    LOST,
    POSITION,
    POSITION_SECONDS,
    RESPONSE,
    TIME,
    CollectiveRequest,
    CollectiveResponse,
    Unpacker,
    pack,
    pack_request,
    unpack_response,
)
from cloudtrain.distributed.negotiation.reader import Reader, close_on_fork
from cloudtrain.observe.timeline.clock import Exchange, clock


class CoordinatorConnection:
    """Sends requests to the coordinator and handles its messages. Arguments as for `Coordinator`.

    Raises:
        OSError: the coordinator is unreachable.
    """

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        rank: int,
        *,
        deliver: Callable[[CollectiveResponse], None],
        lose: Callable[..., None],
        position: Callable[[], Any],
        timeout: float,
    ) -> None:
        self._deliver, self._lose, self._position = deliver, lose, position
        self._connection = socket.create_connection(address, timeout=timeout)
        self._connection.settimeout(None)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._closing = False
        self._positions: dict[int, Any] = {}
        self._positions_received = threading.Event()
        self._exchange: Exchange | None = None
        self._time_received = threading.Event()
        self._closed = False
        self._unpacker = Unpacker()
        self._bye = False
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        self._send(pack(HELLO, [rank, token]))
        close_on_fork(self)
        self._reader = Reader(self._read, "cloudtrain-negotiation")

    def announce(self, request: CollectiveRequest) -> None:
        self._send(pack_request(request))

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
        if not self._poll.poll(timeout * 1000):
            return True
        why = "has shut down" if self._bye else "has died: its connection was closed"
        data = b""
        try:
            data = self._connection.recv(1 << 18)
            received_at = clock()
            for kind, content, payload in self._unpacker.feed(data):
                if kind == RESPONSE:
                    self._deliver(unpack_response(content, payload))
                elif kind == LOST:
                    self._lose(*content)
                elif kind == ASK_POSITIONS:
                    self._send(pack(POSITION, self._position()))
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
            self._lose(0, why)
        return bool(data)
