"""Which archive a tree was packed into the last time, known by the tree's stat data alone.

A file that was changed just before it was looked at may change once more and keep its stat data, because the
clocks of file systems tick slowly. (git calls such an entry "racy".) The index holds the digest of each such
file, and reads it again before it believes that the tree is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cloudtrain._version import __version__
from cloudtrain.packaging._archive import read_unchanged
from cloudtrain.packaging._tree import Entry, signature
from cloudtrain.storage.atomic import write_file

SLOWEST_TICK = 2_000_000_000
"""Nanoseconds: FAT keeps times to two seconds."""


class Snapshot(msgspec.Struct, frozen=True):
    """A tree as it was at one moment."""

    fingerprint: str
    """Of the names and stat data."""
    racy: dict[int, str]
    """The digest of the content of each racy entry, by its position in the tree."""
    version: str = __version__
    """Of cloudtrain: another one may find other secrets."""


class _Record(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    archive: str


def take_snapshot(entries: Sequence[Entry], walked_at: int) -> Snapshot:
    """The tree that was walked at ``walked_at``, in nanoseconds since the epoch.

    Raises Changed or InvalidSource where a racy file cannot be read.
    """
    hasher = hashlib.sha256()
    racy = {}
    for position, entry in enumerate(entries):
        # A folder's times change with what is left out of it.
        state = signature(entry.stat) if entry.is_file else (entry.link,)
        hasher.update(repr((entry.name, state)).encode())
        changed_at = max(entry.stat.st_mtime_ns, entry.stat.st_ctime_ns)
        if entry.is_file and changed_at > walked_at - SLOWEST_TICK:
            racy[position] = _digest(entry)
    return Snapshot(hasher.hexdigest(), racy)


class Index:
    """The last snapshot of one source and the SHA-256 of its archive, kept in the file ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, snapshot: Snapshot, entries: Sequence[Entry]) -> str | None:
        """The SHA-256 of the archive of this very tree, or None."""
        try:
            record = msgspec.json.decode(self._path.read_bytes(), type=_Record)
        except (OSError, msgspec.DecodeError):
            return None
        last = record.snapshot
        if (last.version, last.fingerprint) != (snapshot.version, snapshot.fingerprint):
            return None
        if any(_digest(entries[position]) != digest for position, digest in last.racy.items()):
            return None
        return record.archive

    def save(self, snapshot: Snapshot, archive: str) -> None:
        write_file(self._path, msgspec.json.encode(_Record(snapshot, archive)))


def _digest(entry: Entry) -> str:
    hasher = hashlib.sha256()
    for data in read_unchanged(entry):
        hasher.update(data)
    return hasher.hexdigest()
