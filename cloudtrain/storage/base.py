"""The protocol of all stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import BinaryIO, Callable, Protocol, Union

from cloudtrain._dataclass import dataclass
from cloudtrain.errors import Unreachable


class DamagedBody(Unreachable):
    """The service answers, but the bytes of an object arrive altered, or break off however often they are read."""


class AlteredBody(DamagedBody):
    """The bytes of an object differ from their checksum."""


Progress = Callable[[int], None]
"""Called with the number of bytes just transferred; negative when a part has to be transferred again.

May be called from several threads. An exception aborts the transfer.
"""

Data = Union[bytes, Sequence[memoryview]]
"""The content of an object: bytes, or its pieces in order, which are not copied."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object below a store's URI. ``key`` is relative to it, ``size`` in bytes.

    ``modified`` is the time of the last change in seconds since the epoch; 0.0 if it is not known.
    """

    key: str
    size: int
    modified: float = field(default=0.0, compare=False)


class Store(Protocol):
    """Bytes below one URI. Keys are relative, separated by ``/``, and cannot lead outside it.

    Every write is atomic: a reader sees either the old bytes or the new ones. All methods raise the errors of
    `cloudtrain.errors` (NotFound, AccessDenied, Unreachable, StorageError), which name the full URI. Stores are
    thread-safe. Methods wait for a store that is unavailable: see `retry_policy`.
    """

    uri: str

    def read(self, key: str) -> bytes:
        """The whole object. Raises NotFound."""

    def open(self, key: str) -> BinaryIO:
        """The object as a stream, to be read from beginning to end. Raises NotFound.

        The stream's methods also raise the errors of `cloudtrain.errors`.
        """

    def write(self, key: str, data: Data, *, sha256: bytes | None = None) -> None:
        """Create or replace the object.

        Pass the SHA-256 digest of the data if it is known: some stores send one and need not compute it then.
        """

    def create(self, key: str, data: bytes) -> bool:
        """Create the object if it does not exist; otherwise change nothing and return False.

        Of several simultaneous calls exactly one succeeds, except on an S3 service without conditional writes,
        which is logged.
        """

    def stat(self, key: str) -> ObjectInfo | None:
        """The object's key and size; None if it does not exist. Raises NotFound if the bucket does not exist."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with ``prefix``, sorted by key."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects, ignoring those that do not exist."""

    def download(self, key: str, path: Path, progress: Progress | None = None) -> None:
        """Copy the object to the file ``path``, which appears only when complete."""

    def upload(
        self, source: Path | BinaryIO, key: str, progress: Progress | None = None, *, if_absent: bool = False
    ) -> bool:
        """Copy a file to ``key``.

        Args:
            source: its path, or the open file at its beginning, which stays open.
            if_absent: if the object exists, copy nothing and return False. For content-addressed keys only: two
                simultaneous calls may both copy.
        """


def opened(source: Path | BinaryIO) -> AbstractContextManager[BinaryIO]:
    """The file of `Store.upload`. It is closed at the end of the context if its path was given."""
    return open(source, "rb") if isinstance(source, Path) else nullcontext(source)
