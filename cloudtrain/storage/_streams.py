"""The bodies of S3 requests and responses as streams, without copying whole objects."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cloudtrain.storage.errors import broken_off, s3_errors
from cloudtrain.storage.retry_policy import ATTEMPTS_OF_BODIES, Outage, current

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BLOCK = 1 << 20
"""Bytes passed to the socket at a time: the HTTP client asks for 16 KiB only, at one call each."""


class Body:
    """The pieces of one object as a file for botocore to send; a retried request reads it again."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        self._pieces = pieces
        self._ends = list(accumulate(piece.nbytes for piece in pieces))
        self._position = 0
        self._piece = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self)}[whence]
        self._position, self._piece = base + offset, 0
        return self._position

    def read(self, size: int = -1) -> bytes | memoryview:
        """The next block: a view of a large piece, or several small ones joined. Ignores ``size``."""
        while self._piece < len(self._pieces) and self._ends[self._piece] <= self._position:
            self._piece += 1
        if self._piece == len(self._pieces):
            return b""
        rest = self._rest()
        if rest.nbytes >= BLOCK:
            block: bytes | memoryview = rest[:BLOCK]
        else:
            block = self._joined()
        self._position += len(block)
        return block

    def _rest(self) -> memoryview:
        piece = self._pieces[self._piece]
        return piece[piece.nbytes - (self._ends[self._piece] - self._position) :]

    def _joined(self) -> bytes:
        """Small pieces, joined up to about one block."""
        parts = [self._rest()]
        size = parts[0].nbytes
        for piece in self._pieces[self._piece + 1 :]:
            if size + piece.nbytes > BLOCK:
                break
            parts.append(piece)
            size += piece.nbytes
        return b"".join(parts)


class ObjectStream(io.RawIOBase):
    """An S3 object, read from beginning to end.

    If the connection breaks, reading resumes at the same byte, unless the object has been replaced in between. Raises
    DamagedBody if that never leads further.
    """

    def __init__(self, client: S3Client, uri: str, **where: str) -> None:
        super().__init__()
        self._client = client
        self._uri = uri
        self._where = where
        self._position = 0
        self._outage: Outage | None = None
        """While nothing more of the body can be read."""
        found = self._client.get_object(**where)  # type: ignore[arg-type]
        self._body: Any = found["Body"]
        self._etag = found["ETag"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        from botocore.exceptions import HTTPClientError, IncompleteReadError

        with s3_errors(self._uri):
            while True:
                try:
                    data = self._body.read(len(buffer))
                    break
                except (HTTPClientError, IncompleteReadError) as error:
                    self._outage = self._outage or current().outage(self._uri)
                    if not self._outage.wait(str(error), attempts=ATTEMPTS_OF_BODIES):
                        raise broken_off(self._uri, error) from error
                    self._reopen()
        self._outage = None
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._body.close()
        super().close()

    def _reopen(self) -> None:
        self._body.close()
        found = self._client.get_object(
            **self._where,  # type: ignore[arg-type]
            Range=f"bytes={self._position}-",
            IfMatch=self._etag,
        )
        self._body = found["Body"]
