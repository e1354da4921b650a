"""A store of the files below a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, Callable

from cloudtrain._system.files import in_use, replace, sync
from cloudtrain._system.retries import again
from cloudtrain.storage.atomic import is_temporary, remove_abandoned, temporary_sibling
from cloudtrain.storage.base import DamagedBody, Data, ObjectInfo, Progress, opened
from cloudtrain.storage.errors import file_errors
from cloudtrain.storage.uri import check_key, join_uri, own_file


def walk(folder: Path, prefix: str = "") -> Iterator[ObjectInfo]:
    """All regular files below ``folder`` whose key starts with ``prefix``, sorted by key.

    Follows symbolic links, except to a parent folder. Skips broken links, special files such as sockets, temporary
    files, and files that disappear during the walk. Raises OSError for a folder that cannot be read.
    """
    above: tuple[str, ...] = (os.path.realpath(folder),)
    base = prefix[: prefix.rfind("/") + 1]
    if base and any(part in ("", ".", "..") for part in base[:-1].split("/")):
        return  # no key starts like this
    if base and os.path.realpath(folder / base) not in above:
        above += (os.path.realpath(folder / base),)
    pending = [(key, child, above) for key, child in _children(folder / base, base)]
    while pending:
        key, child, above = pending.pop()
        if key.endswith("/"):
            real = os.path.realpath(child.path)
            if real not in above and (key.startswith(prefix) or prefix.startswith(key)):
                pending += [(*found, (*above, real)) for found in _children(child.path, key)]
        elif key.startswith(prefix) and not is_temporary(child.name):
            with contextlib.suppress(FileNotFoundError):
                if child.is_file():
                    status = child.stat()
                    yield ObjectInfo(key, status.st_size, status.st_mtime)


def _children(folder: str | Path, base: str) -> list[tuple[str, os.DirEntry[str]]]:
    """The entries of ``folder`` with their keys, the first key last; nothing if the folder is gone."""
    try:
        with os.scandir(folder) as found:
            children = [(base + child.name + ("/" if child.is_dir() else ""), child) for child in found]
    except FileNotFoundError:
        return []
    return sorted(children, key=lambda pair: pair[0], reverse=True)


CHUNK = 1 << 20
RACES = 20
"""How often a writer recreates its folder when another process removes it because it is empty."""


class FileStore:
    """A `Store` of the files below ``folder``, which need not exist yet.

    A file is written under a temporary name, synced, and then renamed, or hard-linked where it must not replace
    another file. Both are atomic, also on NFS. Its writer holds a lock on it meanwhile: see `sweep`. Folders that a
    deletion leaves empty are removed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.uri = self.folder.as_uri()

    def read(self, key: str) -> bytes:
        path = self._path(key)
        with file_errors(self._uri(key)), again(lambda: _open(path)) as file:
            return file.read()

    def open(self, key: str) -> BinaryIO:
        path = self._path(key)
        with file_errors(self._uri(key)):
            return again(lambda: _open(path))

    def write(self, key: str, data: Data, *, sha256: bytes | None = None) -> None:
        self._put(key, _writer(data))

    def create(self, key: str, data: bytes) -> bool:
        return self._put(key, _writer(data), only_if_absent=True)

    def stat(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        with file_errors(self._uri(key)):
            try:
                status = again(path.stat)
                return ObjectInfo(key, status.st_size, status.st_mtime) if S_ISREG(status.st_mode) else None
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with file_errors(self.uri):
            yield from walk(self.folder, prefix)

    def names(self) -> Iterator[str]:
        """The names in the folder, files and folders, in any order."""
        with file_errors(self.uri), contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as found:
            yield from (child.name for child in found)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with file_errors(self._uri(key)), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._path(key).unlink()
                self._remove_empty(self._path(key).parent)

    def sweep(self, name: str) -> bool:
        """Remove the temporary files of killed writers, and empty folders, from the folder ``name`` and below.

        Returns whether it is done. It is not while there is a temporary file that a writer has locked, or that was
        written to a moment ago.
        """
        done = True
        with file_errors(self._uri(name)):
            for path, _, files in os.walk(self.folder / name, topdown=False):
                for file in filter(is_temporary, files):
                    done &= remove_abandoned(Path(path, file))
                self._remove_empty(Path(path))
        return done

    def _remove_empty(self, folder: Path) -> None:
        """Remove ``folder`` if it is empty, and then its empty parents. A writer that needs it recreates it."""
        with contextlib.suppress(OSError):
            while folder != self.folder and self.folder in folder.parents:
                folder.rmdir()
                folder = folder.parent

    def download(self, key: str, path: Path, progress: Progress | None = None) -> None:
        source = self._path(key)
        with file_errors(self._uri(key)), _open(source) as file, temporary_sibling(path) as temporary:
            _copy(file, temporary, progress)
            replace(temporary, path)

    def upload(
        self, source: Path | BinaryIO, key: str, progress: Progress | None = None, *, if_absent: bool = False
    ) -> bool:
        if if_absent and self.stat(key):
            return False
        with file_errors(self._uri(key)), opened(source) as file:
            start = file.tell()

            def write(temporary: Path) -> None:
                file.seek(start)
                _copy(file, temporary, progress)

            return self._put(key, write)

    def _put(self, key: str, write: Callable[[Path], None], *, only_if_absent: bool = False) -> bool:
        """Let ``write`` fill a temporary file, and rename it to ``key``."""
        target = self._path(key)

        def put() -> bool:
            with temporary_sibling(target) as temporary, in_use(temporary):
                write(temporary)
                return _publish(temporary, target, only_if_absent)

        with file_errors(self._uri(key)):
            for attempt in count(1):
                try:
                    if only_if_absent:  # after an error, it may have been published
                        return put()
                    return again(put)
                except (FileNotFoundError, FileExistsError):  # another process removes the empty folder
                    if attempt == RACES:
                        raise
        raise AssertionError

    def _path(self, key: str) -> Path:
        check_key(key, self.uri)
        return own_file(self.folder, key)

    def _uri(self, key: str) -> str:
        return join_uri(self.uri, key)


def _open(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one: reading from a pipe would wait for a writer. Raises OSError."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if not S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DamagedBody(f"{path} is not a regular file", hint="Something else has this name: remove it.")
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _writer(data: Data) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        with open(temporary, "wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)

    return write


def _copy(source: BinaryIO, target: Path, progress: Progress | None) -> None:
    with open(target, "wb") as file:
        while chunk := source.read(CHUNK):
            file.write(chunk)
            if progress:
                progress(len(chunk))


def _publish(temporary: Path, target: Path, only_if_absent: bool) -> bool:
    sync(temporary)
    if only_if_absent:
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
    else:
        replace(temporary, target)
    sync(target.parent)
    return True
