"""The other ranks' end of the conversation with rank 0's `Coordinator`."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Any, Callable

from cloudtrain.distributed.negotiation.coordinator import ASK_SECONDS, BYE, HERE, LOST, PLACES, TIME, WHERE
from cloudtrain.distributed.negotiation.messages import (
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
    """Announces to the coordinator, and takes what it says. Arguments as of `Coordinator`.

    Raises:
        OSError: the coordinator cannot be reached.
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
        self._answered = threading.Event()
        self._exchange: Exchange | None = None
        self._told_time = threading.Event()
        self._over = False
        self._unpacker = Unpacker()
        self._bye = False
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        self._send(pack("hello", [rank, token]))
        close_on_fork(self)
        self._reader = Reader(self._turn, "cloudtrain-link")

    def announce(self, request: CollectiveRequest) -> None:
        self._send(pack_request(request))

    def ask_time(self) -> Exchange | None:
        """One exchange with rank 0; None where it does not answer in time. For one thread at a time."""
        self._exchange = None
        self._told_time.clear()
        if not self._over:
            self._send(pack(TIME, clock()))
            self._told_time.wait(ASK_SECONDS)
        return self._exchange

    def close_in_child(self) -> None:
        """Close the connection without a word: in a child that was forked, where it is not its own."""
        self._connection.close()

    def drive(self, over: Callable[[], bool], deadline: float) -> bool:
        """See `Reader.drive`."""
        return self._reader.drive(over, deadline)

    def positions(self) -> dict[int, Any]:
        """Where every rank is that answers in time, by rank."""
        self._answered.clear()
        self._positions = {}
        self._send(pack(WHERE, None))
        self._answered.wait(2 * ASK_SECONDS)
        return self._positions

    def close(self) -> None:
        """Tell the coordinator that this rank is done, and stop."""
        self._closing = True
        self._send(pack(BYE, None))
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.stop()
        self._connection.close()

    def _send(self, data: bytes) -> None:
        # the end of the stream tells that the coordinator is gone
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def _turn(self, timeout: float) -> bool:
        """Handle what the coordinator says; False once it says nothing more."""
        if not self._poll.poll(timeout * 1000):
            return True
        why = "has shut down" if self._bye else "has died: its connection is closed"
        data = b""
        try:
            data = self._connection.recv(1 << 18)
            heard = clock()
            for kind, content, payload in self._unpacker.feed(data):
                if kind == "response":
                    self._deliver(unpack_response(content, payload))
                elif kind == LOST:
                    self._lose(*content)
                elif kind == WHERE:
                    self._send(pack(HERE, self._position()))
                elif kind == PLACES:
                    self._positions = dict(content)
                    self._answered.set()
                elif kind == TIME:
                    self._exchange = (*content, heard)
                    self._told_time.set()
                elif kind == BYE:
                    self._bye = True
        except OSError:
            data = b""
        except Exception as error:
            data, why = b"", f"has said what cannot be understood: {error!r}"
        if not data:
            self._over = True
            self._told_time.set()
        if not data and not self._closing:
            self._lose(0, why)
        return bool(data)
