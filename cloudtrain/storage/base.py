"""The protocol that every kind of storage speaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Protocol

Progress = Callable[[int], None]
"""Called with the number of bytes that were just moved, which is negative where a part is moved again.

Calls may come from several threads. An exception ends the transfer.
"""


@dataclass(frozen=True)
class Entry:
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

    def write(self, key: str, data: bytes) -> None:
        """Put ``data`` at ``key``, over what is there."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Put ``data`` at ``key`` if nothing is there; False, and no change, if something is.

        Of several at the same moment one wins, unless an S3 service lacks conditional writes, which is logged.
        """
        ...

    def stat(self, key: str) -> Entry | None:
        """The entry at ``key``, or None. Raises NotFound where there is no bucket."""
        ...

    def list(self, prefix: str = "") -> Iterator[Entry]:
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
        """Copy the file ``path`` to ``key``; with ``if_absent`` only where nothing is (else False)."""
        ...
