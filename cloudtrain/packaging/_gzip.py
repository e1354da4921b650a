"""Parallel gzip (RFC 1952), as in pigz. The bytes do not depend on the number of cores."""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

LEVEL = 4
"""On source code, 7 times as fast as level 9, which the SageMaker SDK uses, for 6 % more bytes."""

BLOCK = 1 << 20
"""Bytes per independently compressed block. Another size would give other archives for the same source."""

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
    """The bytes of ``pieces`` in blocks of `BLOCK` bytes; the last one may be shorter."""
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
