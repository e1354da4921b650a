"""Files on this machine that a job in the cloud reads. They are named by their content, and uploaded once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cloudtrain.errors import InvalidJob, NotFound, StorageError
from cloudtrain.storage import Progress, Store, join_uri, list_folder, state_home
from cloudtrain.storage.atomic import write_file
from cloudtrain.storage.errors import file_errors
from cloudtrain.storage.transfer import move_each
from cloudtrain.storage.uri import check_key

SLOWEST_TICK = 2_000_000_000
"""The coarsest tick of file times, in nanoseconds: a file changed within it may change again without a new time."""
BLOCK = 1 << 20

CopyFile = Callable[[Path, str, "Progress | None"], object]
"""Copies a file to a URI."""
OpenStore = Callable[[str], Store]


class _Known(msgspec.Struct, frozen=True):
    """The hash of a file as it was last seen."""

    signature: tuple[int, ...]
    sha256: str


_DECODER = msgspec.json.Decoder(dict[str, _Known])
"""Created here, because threads must not create it at the same time: see `cloudtrain.spec.conversion`."""


@dataclass(frozen=True)
class HashedFile:
    """One file. ``key`` is its path relative to the folder."""

    key: str
    path: Path
    signature: tuple[int, ...]
    sha256: str

    @property
    def size(self) -> int:
        """In bytes."""
        return self.signature[0]


@dataclass(frozen=True)
class LocalData:
    """A folder or file on this machine, and the hashes of its content."""

    path: Path
    files: Sequence[HashedFile]
    digest: str
    """SHA-256 of the names and contents of all files."""

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class PlacedData:
    """The data of the channel ``name``, and its place in the cloud: below ``location``, under its digest."""

    name: str
    data: LocalData
    location: str
    open_store: OpenStore
    copy: CopyFile

    @property
    def size(self) -> int:
        """In bytes."""
        return self.data.size

    @property
    def uri(self) -> str:
        """The URI of the channel: a folder for a folder, an object for a file."""
        return self._folder if self.data.path.is_dir() else join_uri(self._folder, self.data.path.name)

    @property
    def _folder(self) -> str:
        return join_uri(self.location, self.data.digest)

    def upload(self, progress: Progress | None = None, say: Callable[[str], object] | None = None) -> None:
        """Upload the files that are not there yet.

        Args:
            progress: called with the number of bytes just uploaded. Files that are already there are counted first.
            say: called with a line if there is anything to upload.

        Raises:
            StorageError: a file has changed since it was hashed, or cannot be copied.
        """
        progress = progress or (lambda count: None)
        missing = self._missing()
        size = sum(file.size for file in missing)
        progress(self.size - size)
        if missing and say:
            from rich.filesize import decimal

            files = f"{len(missing):,} {'files' if len(missing) > 1 else 'file'}"
            say(f"Uploading channel {self.name}: {files}, {decimal(size)}, to {self.uri}")
        move_each(missing, self._upload, progress)

    def _missing(self) -> list[HashedFile]:
        found: dict[str, int] = {}
        with contextlib.suppress(NotFound):  # there is no bucket yet
            found = {entry.key: entry.size for entry in self.open_store(self._folder).list()}
        return [file for file in self.data.files if found.get(file.key) != file.size]

    def _upload(self, file: HashedFile, progress: Progress) -> None:
        _check(file)  # before the upload, because a wrong object would keep this name
        self.copy(file.path, join_uri(self._folder, file.key), progress)
        try:
            _check(file)
        except StorageError:
            self.open_store(self._folder).delete([file.key])
            raise


def _check(file: HashedFile) -> None:
    """Raises StorageError if the file has changed since it was hashed."""
    with file_errors(str(file.path)):
        if _signature(file.path) != file.signature:
            raise StorageError(
                f"{file.path} changed while it was being uploaded", hint="Submit the job when it is complete."
            )


def hash_data(path: Path, progress: Progress | None = None) -> LocalData:
    """Hash the files at ``path``. Files that have not changed since the last call are not read again.

    Args:
        progress: called with the number of bytes just read.

    Raises:
        InvalidJob: there are no files.
        StorageError: a file cannot be read, or has a name that is impossible in S3.
    """
    with file_errors(str(path)):
        is_folder = path.is_dir()
        keys = [entry.key for entry in list_folder(path)] if is_folder else [path.name]
    if not keys:
        raise InvalidJob(f"{path} has no files", hint="Put the data there, or leave out the channel.")
    for key in keys:
        check_key(key, str(path))
    index = _Index(path)
    files: dict[str, HashedFile] = {}

    def read(key: str, report: Progress) -> None:
        file = path / key if is_folder else path
        with file_errors(str(file)):
            signature = _signature(file)
            sha256 = index.find(key, signature) or _sha256(file, report)
        files[key] = HashedFile(key, file, signature, sha256)

    move_each(keys, read, progress)
    found = [files[key] for key in keys]
    index.save(found)
    text = "".join(f"{file.sha256} {file.size} {file.key}\n" for file in found)
    return LocalData(path, found, hashlib.sha256(text.encode()).hexdigest())


class _Index:
    """The hashes of the files at one path, kept in the state folder."""

    def __init__(self, path: Path) -> None:
        name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
        self._file = state_home() / "data" / f"{name[:32]}.json"
        self._known: dict[str, _Known] = {}
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._known = _DECODER.decode(self._file.read_bytes())

    def find(self, key: str, signature: tuple[int, ...]) -> str | None:
        """The hash of a file; None if it is unknown, or the file has changed."""
        known = self._known.get(key)
        return known.sha256 if known and known.signature == signature else None

    def save(self, files: Sequence[HashedFile]) -> None:
        """Store the hashes, except those of files that changed just now, which could change again unnoticed."""
        latest = time.time_ns() - SLOWEST_TICK
        known = {
            file.key: _Known(file.signature, file.sha256)
            for file in files
            if max(file.signature[1], file.signature[2]) < latest
        }
        if known != self._known:
            with contextlib.suppress(OSError):  # a full disk: the files are read again next time
                write_file(self._file, msgspec.json.encode(known))


def _signature(path: Path) -> tuple[int, ...]:
    """Stat data that changes whenever the content does. The size is first."""
    status = path.stat()
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)


def _sha256(path: Path, progress: Progress) -> str:
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            hasher.update(block)
            progress(len(block))
    return hasher.hexdigest()
