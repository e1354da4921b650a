"""A store of the files below a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cloudtrain._system.files import replace, sync
from cloudtrain.storage._errors import file_errors
from cloudtrain.storage._walk import walk
from cloudtrain.storage.atomic import temporary_sibling
from cloudtrain.storage.base import Data, ObjectInfo, Progress, opened
from cloudtrain.storage.uri import check_key, join_uri, own_file

CHUNK = 1 << 20


class FileStore:
    """A `Store` of the files below ``folder``, which need not exist yet.

    A file is written under a temporary name, synced, and then renamed, or hard-linked where it must not replace
    another file. Both are atomic, also on NFS.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.uri = self.folder.as_uri()

    def read(self, key: str) -> bytes:
        with file_errors(self._uri(key)):
            return self._path(key).read_bytes()

    def open(self, key: str) -> BinaryIO:
        with file_errors(self._uri(key)):
            return open(self._path(key), "rb")

    def write(self, key: str, data: Data, *, sha256: bytes | None = None) -> None:
        self._put(key, data, only_if_absent=False)

    def create(self, key: str, data: bytes) -> bool:
        return self._put(key, data, only_if_absent=True)

    def stat(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        with file_errors(self._uri(key)):
            try:
                status = path.stat()
                return ObjectInfo(key, status.st_size, status.st_mtime) if path.is_file() else None
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with file_errors(self.uri):
            yield from walk(self.folder, prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with file_errors(self._uri(key)), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._path(key).unlink()

    def download(self, key: str, path: Path, progress: Progress | None = None) -> None:
        source = self._path(key)
        with file_errors(self._uri(key)), open(source, "rb") as file, temporary_sibling(path) as temporary:
            _copy(file, temporary, progress)
            replace(temporary, path)

    def upload(
        self, source: Path | BinaryIO, key: str, progress: Progress | None = None, *, if_absent: bool = False
    ) -> bool:
        if if_absent and self.stat(key):
            return False
        target = self._path(key)
        with file_errors(self._uri(key)), opened(source) as file, temporary_sibling(target) as temporary:
            _copy(file, temporary, progress)
            return _publish(temporary, target, only_if_absent=False)

    def _put(self, key: str, data: Data, only_if_absent: bool) -> bool:
        target = self._path(key)
        with file_errors(self._uri(key)), temporary_sibling(target) as temporary:
            with open(temporary, "wb") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
            return _publish(temporary, target, only_if_absent)

    def _path(self, key: str) -> Path:
        check_key(key, self.uri)
        return own_file(self.folder, key)

    def _uri(self, key: str) -> str:
        return join_uri(self.uri, key)


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
