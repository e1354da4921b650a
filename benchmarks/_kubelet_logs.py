"""Serves the logs of many pods to the API server, as a kubelet does, but without any pods.

``_kubelet_logs.py CERTIFICATES`` prints its port, then reads ``[LINES, SECONDS]`` from its input. From the next request
on, each pod prints ``LINES`` lines over ``SECONDS`` seconds; if ``SECONDS`` is 0, all of them before that request.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

TICK = 0.1
LEAD = 1.0
"""The seconds from the first request to the first line, to give the other requests time."""
TEXT = "x" * 60


class Schedule:
    """The times at which lines are printed."""

    def __init__(self) -> None:
        self.set(0, 0.0)

    def set(self, lines: int, seconds: float) -> None:
        self.lines, self.seconds = lines, seconds
        self.began: float | None = None

    def begin(self) -> None:
        if self.began is None:
            self.began = time.time() + LEAD if self.seconds else time.time() - 3600

    def at(self, number: int) -> float:
        assert self.began is not None
        return self.began + number * (self.seconds or 1800) / self.lines

    def due(self) -> int:
        """The number of lines that each pod has printed so far."""
        assert self.began is not None
        passed = (time.time() - self.began) / (self.seconds or 1800)
        return max(0, min(self.lines, int(passed * self.lines)))


SCHEDULE = Schedule()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection, one after another."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            url = urlsplit(head.split(b" ", 2)[1].decode())
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            await send(url.path.split("/")[-2], query, writer)
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        writer.close()


async def send(pod: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
    SCHEDULE.begin()
    follow, stamped = query.get("follow") == "true", query.get("timestamps") == "true"
    since = query.get("sinceTime", "")
    number = int(pod.rpartition("-")[2])
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = 0
    while True:
        due = SCHEDULE.due()
        lines = []
        for index in range(sent, due):
            at = SCHEDULE.at(index) + number * 1e-6
            stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int(at % 1 * 1e9):09}Z "
            if stamp >= since:
                lines.append(
                    f"{stamp if stamped else ''}line {index} of {number} printed at {at:.6f} {TEXT}\n"
                )
        sent = due
        for start in range(0, len(lines), 50):
            data = "".join(lines[start : start + 50]).encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        if not follow or sent == SCHEDULE.lines:
            break
        await asyncio.sleep(TICK)
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def main(certificates: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        SCHEDULE.set(*json.loads(line))
        print("set", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
