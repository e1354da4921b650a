"""An HTTP proxy before a real S3 server, with the faults of networks and of servers that are overloaded.

It carries bytes as they come: what is held or lost is a piece of a real request, not a whole one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from threading import Thread
from types import TracebackType
from urllib.parse import urlsplit

CHUNK = 1 << 18
DELAY = 0.1
"""Seconds by which a request is delayed; a slow body takes twice as long."""

ERROR = (
    "HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {length}\r\n"
    "Connection: close\r\n\r\n{body}"
)
ERROR_BODY = "<Error><Code>{code}</Code><Message>The fault proxy says so.</Message></Error>"


class Fault(Enum):
    PASS = "pass"
    DELAY = "delay"
    SLOW_BODY = "slow body"
    STALL = "stall"
    CUT_REQUEST = "cut in the request"
    CUT_ANSWER = "cut in the answer"
    LOST_ANSWER = "lost answer"
    INTERNAL_ERROR = "500 InternalError"
    UNAVAILABLE = "503 ServiceUnavailable"
    SLOW_DOWN = "503 SlowDown"


ERRORS = (Fault.INTERNAL_ERROR, Fault.UNAVAILABLE, Fault.SLOW_DOWN)

Choose = Callable[[str], Fault]
"""The fault of a request, by its method."""


def no_fault(method: str) -> Fault:
    return Fault.PASS


class FaultProxy:
    """Listens on loopback during its ``with`` block; every request asks `choose`.

    ``upstream`` and `choose` may be set at any time, for the requests to come.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.choose: Choose = no_fault
        self.met: Counter[Fault] = Counter()
        """How often each fault has happened."""
        self._loop = asyncio.new_event_loop()
        self._under_way: set[asyncio.Task[None] | None] = set()

    def __enter__(self) -> FaultProxy:
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK)
        self._server = self._loop.run_until_complete(start)
        self.endpoint = "http://{}:{}".format(*self._server.sockets[0].getsockname())
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def settle(self, timeout: float = 60) -> None:
        """Wait until the requests of clients that are dead have come to their end: they may outlive them."""
        address = urlsplit(self.endpoint)
        with socket.create_connection((address.hostname, address.port), timeout) as probe:
            probe.shutdown(socket.SHUT_WR)
            probe.recv(1)  # connections are accepted in order: those before this one are counted now
        deadline = time.monotonic() + timeout
        while self._under_way:
            assert time.monotonic() < deadline, f"{len(self._under_way)} requests have not ended"
            time.sleep(0.005)

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection with one request: the header asks the server to close it afterwards."""
        task = asyncio.current_task()
        self._under_way.add(task)  # asyncio itself does not keep tasks alive
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        finally:
            self._under_way.discard(task)
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = _Exchange(head, reader, writer)
        fault = self.choose(exchange.method)
        self.met[fault] += 1
        await exchange.invite_body()
        if fault is Fault.STALL:
            await reader.read()  # until the client gives up, or is dead
        elif fault in ERRORS:
            await exchange.refuse(fault.value)
        else:
            await exchange.carry(fault, self.upstream)


class _Exchange:
    """One request and its answer."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = head.decode("latin-1").split("\r\n")[:-2]
        self.method = lines[0].split(" ")[0]
        headers = [line.split(":", 1) for line in lines[1:]]
        values = {name.lower(): value.strip() for name, value in headers}
        self.length = int(values.get("content-length", 0))
        self._expects = "expect" in values
        kept = [lines[0]]
        kept += [line for line in lines[1:] if line.split(":")[0].lower() not in ("expect", "connection")]
        self._head = "\r\n".join([*kept, "Connection: close", "", ""]).encode("latin-1")
        self._reader = reader
        self._writer = writer

    async def invite_body(self) -> None:
        if self._expects:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._writer.drain()

    async def refuse(self, status: str) -> None:
        for piece in self._pieces(self.length):
            await self._reader.readexactly(piece)
        body = ERROR_BODY.format(code=status.split()[1])
        self._writer.write(ERROR.format(status=status, length=len(body), body=body).encode())
        await self._writer.drain()

    async def carry(self, fault: Fault, upstream: str) -> None:
        """To the server and back; an OSError of either side ends it."""
        address = urlsplit(upstream)
        from_server, to_server = await asyncio.open_connection(address.hostname, address.port, limit=CHUNK)
        try:
            if fault is Fault.DELAY:
                await asyncio.sleep(DELAY)
            to_server.write(self._head)
            await self._carry_body(fault, to_server)
            if fault is not Fault.CUT_REQUEST:
                await self._carry_answer(fault, from_server)
        finally:
            to_server.transport.abort()

    async def _carry_body(self, fault: Fault, to_server: asyncio.StreamWriter) -> None:
        pieces = self._pieces(self.length // 2 if fault is Fault.CUT_REQUEST else self.length)
        for piece in pieces:
            to_server.write(await self._reader.readexactly(piece))
            await to_server.drain()
            if fault is Fault.SLOW_BODY:
                await asyncio.sleep(2 * DELAY / len(pieces))

    async def _carry_answer(self, fault: Fault, from_server: asyncio.StreamReader) -> None:
        if fault in (Fault.LOST_ANSWER, Fault.CUT_ANSWER):
            answer = await from_server.read(-1)
            head, end, body = answer.partition(b"\r\n\r\n")
            if fault is Fault.CUT_ANSWER and body:
                self._writer.write(head + end + body[: len(body) // 2])
                await self._writer.drain()
            return
        client_is_there = True
        while piece := await from_server.read(CHUNK):
            # The server completes the requests of a dead client.
            if client_is_there:
                try:
                    self._writer.write(piece)
                    await self._writer.drain()
                except ConnectionError:
                    client_is_there = False

    @staticmethod
    def _pieces(length: int) -> list[int]:
        whole, rest = divmod(length, CHUNK)
        return [CHUNK] * whole + [rest] * bool(rest)
