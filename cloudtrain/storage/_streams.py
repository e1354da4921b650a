"""The bodies of requests and responses as streams, without copying whole objects."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from cloudtrain.storage.errors import broken_off, s3_errors
from cloudtrain.storage.retry_policy import ATTEMPTS_OF_BODIES, Outage, current

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BLOCK = 1 << 20
"""Bytes passed to the socket at a time. The HTTP client itself would read only 16 KiB with each call."""


class Body(io.RawIOBase):
    """The pieces of one object as a file for an HTTP client to send; a retried request reads it again."""

    def __init__(self, pieces: Sequence[memoryview]) -> None:
        super().__init__()
        self._pieces = [piece.cast("B") for piece in pieces]
        self._ends = list(accumulate(piece.nbytes for piece in self._pieces))
        self._position = 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self)}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Copies at most the rest of one piece: for a reader that has its own buffer, such as Google's library."""
        part = next(self._rest(), memoryview(b""))[: len(buffer)]
        buffer[: part.nbytes] = part
        self._position += part.nbytes
        return part.nbytes

    def read(self, size: int = -1) -> bytes | memoryview:
        """The next block: a view of a large piece, or several small ones joined. Ignores ``size``."""
        parts: list[memoryview] = []
        room = BLOCK
        for part in self._rest():
            if part.nbytes > room:
                parts += [] if parts else [part[:BLOCK]]
                break
            parts.append(part)
            room -= part.nbytes
        block: bytes | memoryview = parts[0] if len(parts) == 1 else b"".join(parts)
        self._position += len(block)
        return block

    def readall(self) -> bytes:
        return b"".join(iter(self.read, b""))

    def _rest(self) -> Iterator[memoryview]:
        """The rest of the pieces, from the position on."""
        index = bisect_right(self._ends, self._position)
        if index < len(self._pieces):
            piece = self._pieces[index]
            yield piece[piece.nbytes - (self._ends[index] - self._position) :]
        yield from self._pieces[index + 1 :]


class ObjectStream(io.RawIOBase):
    """An S3 object, read from beginning to end.

    If the connection breaks, reading resumes at the same byte, unless the object has been replaced in between. Raises
    DamagedBody if no attempt gets any further.
    """

    def __init__(self, client: S3Client, uri: str, **where: str) -> None:
        self._body: Any = io.BytesIO()  # closed too if the request fails
        super().__init__()
        self._client = client
        self._uri = uri
        self._where = where
        self._position = 0
        self._outage: Outage | None = None
        """The failures while no more of the body can be read, else None."""
        found = self._client.get_object(**where)  # type: ignore[arg-type]
        self._body = found["Body"]
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
