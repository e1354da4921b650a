"""Attacks the leader of a job: many connections of processes that do not know its secret.

    python crowd.py HOST:PORT COUNT

A third of them are idle, a third send data without end, and a third begin the handshake and do not finish it. Each
connects again when it is disconnected. Prints how many connections it has made, once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import sys

made = itertools.count()
HELLO = b"ctlink1\ncontrol\0" + bytes(32)


async def connect(host: str, port: int, kind: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            next(made)
            with contextlib.closing(writer):
                if kind == 2:
                    writer.write(HELLO)
                while kind == 1:
                    writer.write(b'{"type": "join", "host": "n1", "token": "' * 100)
                    await writer.drain()
                await reader.read(1000)
                if kind == 2:
                    writer.write(os.urandom(32))
                await reader.read()
        await asyncio.sleep(0.05)


async def main(address: str, count: int) -> None:
    host, _, port = address.rpartition(":")
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
    tasks = [asyncio.create_task(connect(host, int(port), number % 3)) for number in range(count)]
    while tasks:
        await asyncio.sleep(1)
        print(f"connections: {next(made)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
