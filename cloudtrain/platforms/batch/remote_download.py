"""Copies outputs of jobs from a cluster whose file system is not mounted here."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from cloudtrain.errors import NotFound, StorageError
from cloudtrain.platforms.batch.remote_path import quoted_path
from cloudtrain.platforms.batch.shell import ConnectionLost, Shell
from cloudtrain.storage import Progress, split_uri
from cloudtrain.storage.atomic import TEMPORARY, temporary_sibling
from cloudtrain.storage.transfer import check_targets
from cloudtrain.storage.uri import check_key, own_file

ATTEMPTS = 3

_LOOK = """LC_ALL=C; export LC_ALL; f={path}
if [ -f "$f" ]; then echo file; elif [ -d "$f" ]; then echo folder; else echo nothing; fi
"""


def download_remote(shell: Shell, uri: str, folder: Path, progress: Progress | None = None) -> Path:
    """Copy the file or the folder at a ``file://`` URI of the cluster into ``folder``, and return its path.

    After a broken connection, a file resumes where it stopped. Raises NotFound, StorageError, PlatformError.
    """
    name = split_uri(uri)[1]
    target = own_file(folder, name)
    path = quoted_path(uri)
    kind = shell.run(_LOOK.format(path=path)).text
    if kind not in ("file", "folder"):
        raise NotFound(f"{shell.place}: {uri} is gone", hint="It was removed after the job had written it.")
    copy = _copy_file if kind == "file" else _copy_folder
    try:
        copy(shell, path, target, progress or (lambda count: None))
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _copy_file(shell: Shell, path: str, target: Path, progress: Progress) -> None:
    answer = shell.run(f"LC_ALL=C; export LC_ALL; wc -c < {path}")
    if not answer.text.isdecimal():
        raise StorageError(f"{shell.place}: {path} cannot be read: {answer.complaint or answer.text}")
    size = int(answer.text)
    with temporary_sibling(target) as temporary:
        position = 0
        for attempt in range(ATTEMPTS):
            with open(temporary, "r+b" if attempt else "wb") as file:
                file.seek(position)
                try:
                    with shell.stream(f"exec tail -c +{position + 1} {path}") as pieces:
                        for piece in pieces:
                            file.write(piece)
                            position += len(piece)
                            progress(len(piece))
                    break
                except ConnectionLost:
                    if attempt + 1 == ATTEMPTS:
                        raise
        if position != size:
            raise StorageError(f"{shell.place}: {path} has {size} bytes, and {position} arrived")
        temporary.replace(target)


def _copy_folder(shell: Shell, path: str, target: Path, progress: Progress) -> None:
    with TemporaryDirectory(prefix=TEMPORARY, dir=target.parent) as name:
        temporary = Path(name)
        with shell.stream(f"exec tar -C {path} -c -f - .") as pieces:
            _extract(_Pieces(pieces), temporary, progress)
        keys = [file.relative_to(temporary).as_posix() for file in temporary.rglob("*") if file.is_file()]
        check_targets(target.parent, [f"{target.name}/{key}" for key in keys])
        for key in keys:
            file = own_file(target, key)
            file.parent.mkdir(parents=True, exist_ok=True)
            (temporary / key).replace(file)


def _extract(stream: _Pieces, folder: Path, progress: Progress) -> None:
    """Extract regular files only, and only into ``folder``, even if the archive names paths outside of it."""
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
            for member in archive:
                key = member.name.removeprefix("./")
                content = archive.extractfile(member) if member.isreg() else None
                if content is None:
                    continue
                check_key(key, "the archive")
                target = own_file(folder, key)
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "xb") as file:
                    shutil.copyfileobj(content, file)
                progress(member.size)
    except tarfile.TarError as error:
        raise ConnectionLost(f"the connection broke: {error}") from error


class _Pieces(RawIOBase):
    """The pieces of a stream as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        parts, missing = [], size
        while missing:
            if not self._rest:
                found = next(self._pieces, None)
                if found is None:
                    break
                self._rest = found
                continue
            part, self._rest = self._rest[:missing], self._rest[missing:]
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)
