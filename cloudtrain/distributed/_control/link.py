"""The other ranks' end of the conversation with rank 0's `Coordinator`."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Callable

from cloudtrain.distributed._control.coordinator import ASK_SECONDS, BYE, HERE, LOST, PLACES, WHERE
from cloudtrain.distributed._control.messages import (
    Request,
    Unpacker,
    Verdict,
    pack,
    pack_request,
    unpack_verdict,
)


class Link:
    """Announces to the coordinator; a thread takes what it says. Arguments as of `Coordinator`.

    Raises:
        OSError: the coordinator cannot be reached.
    """

    def __init__(
        self,
        address: tuple[str, int],
        token: str,
        rank: int,
        *,
        deliver: Callable[[Verdict], None],
        lose: Callable[[int, str], None],
        place: Callable[[], Any],
        timeout: float,
    ) -> None:
        self._deliver, self._lose, self._place = deliver, lose, place
        self._connection = socket.create_connection(address, timeout=timeout)
        self._connection.settimeout(None)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._closing = False
        self._places: dict[int, Any] = {}
        self._answered = threading.Event()
        self._send(pack("hello", [rank, token]))
        self._thread = threading.Thread(target=self._listen, name="cloudtrain-link", daemon=True)
        self._thread.start()

    def announce(self, request: Request) -> None:
        self._send(pack_request(request))

    def places(self) -> dict[int, Any]:
        """Where every rank is that answers in time, by rank."""
        self._answered.clear()
        self._places = {}
        self._send(pack(WHERE, None))
        self._answered.wait(2 * ASK_SECONDS)
        return self._places

    def close(self) -> None:
        """Tell the coordinator that this rank is done, and stop."""
        self._closing = True
        self._send(pack(BYE, None))
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._connection.close()

    def _send(self, data: bytes) -> None:
        # the thread hears of it when the coordinator is gone
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(data)

    def _listen(self) -> None:
        unpacker = Unpacker()
        why = "has died: its connection is closed"
        with contextlib.suppress(OSError, ValueError):
            while True:
                data = self._connection.recv(1 << 18)
                if not data:
                    break
                for kind, content, payload in unpacker.feed(data):
                    if kind == "verdict":
                        self._deliver(unpack_verdict(content, payload))
                    elif kind == LOST:
                        self._lose(*content)
                    elif kind == WHERE:
                        self._send(pack(HERE, self._place()))
                    elif kind == PLACES:
                        self._places = dict(content)
                        self._answered.set()
                    elif kind == BYE:
                        why = "has shut down"
        if not self._closing:
            self._lose(0, why)
