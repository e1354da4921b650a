"""Finds the archive of an unchanged tree by stat data, without reading the tree.

File systems store times with a coarse resolution. A file that changes twice within one tick keeps its stat data, so
a file that changed just before the walk may change again unnoticed. (git calls such an index entry "racy".) The
index stores the digest of each racy file, and reads the file again before it considers the tree unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cloudtrain._system.files import signature
from cloudtrain._version import __version__
from cloudtrain.packaging._archive import read_unchanged
from cloudtrain.packaging._secrets import RULES
from cloudtrain.packaging._tree import ArchiveMember
from cloudtrain.storage.atomic import write_file

SLOWEST_TICK = 2_000_000_000
"""Nanoseconds: FAT stores times with a resolution of two seconds."""


class TreeFingerprint(msgspec.Struct, frozen=True):
    """Identifies the state of a tree."""

    digest: str
    """The digest of all names and stat data."""
    racy: dict[int, str]
    """The digest of the content of each racy file, by its position in the tree."""
    version: str = f"{__version__}, rules {RULES}"
    """The version of cloudtrain and of its rules: another version may detect other secrets."""


class _Record(msgspec.Struct, frozen=True):
    fingerprint: TreeFingerprint
    archive: str


_DECODER = msgspec.json.Decoder(_Record)
"""Created at import, because threads must not create it at the same time: see `cloudtrain.spec.conversion`."""


def take_fingerprint(members: Sequence[ArchiveMember], walked_at: int) -> TreeFingerprint:
    """The fingerprint of a tree that was walked at ``walked_at``, in nanoseconds since the epoch.

    Raises:
        InvalidSource: a racy file cannot be read.
        Changed: a racy file changed after the walk.
    """
    hasher = hashlib.sha256()
    racy = {}
    for position, member in enumerate(members):
        # Ignore the times of folders: they also change with ignored files.
        state = signature(member.stat) if member.is_file else (member.link,)
        hasher.update(repr((member.name, state)).encode())
        changed_at = max(member.stat.st_mtime_ns, member.stat.st_ctime_ns)
        if member.is_file and changed_at > walked_at - SLOWEST_TICK:
            racy[position] = _digest(member)
    return TreeFingerprint(hasher.hexdigest(), racy)


class Index:
    """Stores the last fingerprint of one source, and the SHA-256 of its archive, in the file ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, fingerprint: TreeFingerprint, members: Sequence[ArchiveMember]) -> str | None:
        """The SHA-256 of the archive, or None if the tree has changed since it was packed."""
        try:
            record = _DECODER.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        last = record.fingerprint
        if (last.version, last.digest) != (fingerprint.version, fingerprint.digest):
            return None
        if any(_digest(members[position]) != digest for position, digest in last.racy.items()):
            return None
        return record.archive

    def save(self, fingerprint: TreeFingerprint, archive: str) -> None:
        write_file(self._path, msgspec.json.encode(_Record(fingerprint, archive)))


def _digest(member: ArchiveMember) -> str:
    hasher = hashlib.sha256()
    for data in read_unchanged(member):
        hasher.update(data)
    return hasher.hexdigest()
