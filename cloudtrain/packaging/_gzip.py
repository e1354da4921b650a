"""gzip on all cores, as pigz does it (RFC 1952), with the same bytes on any number of them."""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

LEVEL = 4
"""On source code seven times as fast as level 9, which the SageMaker SDK uses, for 6 % more bytes."""

BLOCK = 1 << 20
"""Bytes that are compressed on their own. Part of the format: another size gives other bytes."""

_HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"  # deflate, no name, no time, unknown system


def gzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """One gzip member that holds all ``pieces``."""
    checksum = length = 0
    cores = os.cpu_count() or 1
    waiting: deque[Future[bytes]] = deque()
    yield _HEADER
    with ThreadPoolExecutor(cores) as pool:
        for block in _blocks(pieces):
            checksum = zlib.crc32(block, checksum)
            length += len(block)
            waiting.append(pool.submit(_deflate, block, zlib.Z_FULL_FLUSH))
            if len(waiting) > 2 * cores:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
    yield _deflate(b"", zlib.Z_FINISH)
    yield struct.pack("<LL", checksum, length & 0xFFFFFFFF)


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of `BLOCK` bytes; the last may be shorter."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= BLOCK:
            yield bytes(buffer[:BLOCK])
            del buffer[:BLOCK]
    yield bytes(buffer)


def _deflate(data: bytes, flush: int) -> bytes:
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush(flush)
