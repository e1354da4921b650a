"""The protocol that every kind of storage speaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable, Protocol, Union

Progress = Callable[[int], None]
"""Called with the number of bytes that were just moved, which is negative where a part is moved again.

Calls may come from several threads. An exception ends the transfer.
"""

Data = Union[bytes, Sequence[memoryview]]
"""What can be written: bytes, or the pieces of one object in their order, which are not copied."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object below a store's URI. ``key`` is relative to it, ``size`` in bytes."""

    key: str
    size: int


class Store(Protocol):
    """Bytes below one URI. Keys are relative, separated by ``/``, and lead out of it by no way.

    Every write is all or nothing: a reader sees the old bytes, or the new ones. All methods raise the
    errors of `cloudtrain.errors` (NotFound, AccessDenied, Unreachable, StorageError) and name the full URI.
    Stores may be shared by threads.
    """

    uri: str

    def read(self, key: str) -> bytes:
        """The whole object. Raises NotFound."""
        ...

    def open(self, key: str) -> BinaryIO:
        """The object as a stream to read from its beginning to its end. Raises NotFound.

        Its methods raise the errors of `cloudtrain.errors` too.
        """
        ...

    def write(self, key: str, data: Data, *, sha256: bytes | None = None) -> None:
        """Put ``data`` at ``key``, over what is there.

        A caller that knows the SHA-256 digest of the data spares a store that sends one its own.
        """
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Put ``data`` at ``key`` if nothing is there; False, and no change, if something is.

        Of several at the same moment one wins, unless an S3 service lacks conditional writes, which is logged.
        """
        ...

    def stat(self, key: str) -> ObjectInfo | None:
        """The entry at ``key``, or None. Raises NotFound where there is no bucket."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All entries whose key starts with ``prefix``, sorted by key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the objects; those that are not there count as removed."""
        ...

    def download(self, key: str, path: Path, progress: Progress | None = None) -> None:
        """Copy the object into the file ``path``; it appears under its name only when it is whole."""
        ...

    def upload(
        self, path: Path, key: str, progress: Progress | None = None, *, if_absent: bool = False
    ) -> bool:
        """Copy the file ``path`` to ``key``.

        Args:
            if_absent: copy only where nothing is, else return False. For keys that name their content: of two
                at the same moment both may copy.
        """
        ...
