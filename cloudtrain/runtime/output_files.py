"""Lists the outputs of a host, hashes them, and writes them to archives."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cloudtrain.contract import Paths
from cloudtrain.runtime.merge import FILE, FOLDER, KINDS, LINK, MODEL, OutputFile
from cloudtrain.storage import list_folder
from cloudtrain.storage.atomic import is_temporary

CHUNK = 1 << 20
TEMPORARY = ".upload-"


def output_folder(paths: Paths, kind: str) -> Path:
    """The folder of a host that holds the outputs of this kind."""
    return paths.model if kind == MODEL else paths.output_data


def list_outputs(paths: Paths, *, archived: bool) -> list[OutputFile]:
    """The outputs of a host, sorted; a folder comes before its content.

    Args:
        archived: list folders and symbolic links too. Otherwise, list the files that an upload of the folder copies,
            which follows links.
    """
    found: list[OutputFile] = []
    for kind in KINDS:
        folder = output_folder(paths, kind)
        if not folder.is_dir():
            continue
        if archived:
            found += _walk(kind, folder)
        else:
            found += (OutputFile(kind, entry.key, FILE, entry.size) for entry in list_folder(folder))
    return found


def _walk(kind: str, top: Path) -> Iterator[OutputFile]:
    """Everything below ``top``, except sockets, pipes, devices and unfinished files. Folders can be nested deeply."""
    pending = _children(str(top), "")
    while pending:
        path, entry = pending.pop()
        if entry.is_symlink():
            yield OutputFile(kind, path, LINK, os.readlink(entry.path))
        elif entry.is_dir():
            yield OutputFile(kind, path, FOLDER, None)
            pending += _children(entry.path, f"{path}/")
        elif entry.is_file() and not is_temporary(entry.name):
            yield OutputFile(kind, path, FILE, entry.stat().st_size)


def _children(folder: str, base: str) -> list[tuple[str, os.DirEntry[str]]]:
    """The entries of ``folder`` with their paths relative to the top, the first name last."""
    with os.scandir(folder) as children:
        return [
            (base + entry.name, entry)
            for entry in sorted(children, key=lambda entry: entry.name, reverse=True)
        ]


@contextlib.contextmanager
def temporary_folder(paths: Paths) -> Iterator[Path]:
    """A folder for archives that are about to be uploaded. Removes one that a killed process left."""
    for left in paths.base.glob(f"{TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=paths.base, prefix=TEMPORARY) as folder:
        yield Path(folder)


class ArchiveWriter:
    """Writes a tar archive. Its bytes depend only on what is added: it has neither owners nor the time of day."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, *, compressed: bool) -> Iterator[ArchiveWriter]:
        """Create the archive ``path``, with gzip if ``compressed``."""
        with contextlib.ExitStack() as stack:
            file: BinaryIO = stack.enter_context(open(path, "wb"))
            if compressed:
                # weights hardly compress: a higher level gains little
                packed = gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0)
                file = stack.enter_context(packed)  # type: ignore[assignment]
            archive = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK)
            yield cls(stack.enter_context(archive))

    def add_files(self, folder: Path, files: Iterable[OutputFile]) -> None:
        """Add ``files`` below ``folder``. Skips those that no longer exist."""
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                self._add_file(folder / file.path, file.path)

    def _add_file(self, path: Path, name: str) -> None:
        header = self._archive.gettarinfo(path, name)
        header.uid = header.gid = 0
        header.uname = header.gname = ""
        header.mtime = int(header.mtime)
        if header.isreg():
            with open(path, "rb") as content:
                self._archive.addfile(header, content)
        else:
            self._archive.addfile(header)
        self._forget(self._archive)

    def add_archive(self, stream: BinaryIO) -> None:
        """Add everything in an uncompressed tar archive, which is read once, from beginning to end."""
        with tarfile.open(fileobj=stream, mode="r|") as part:
            while (header := part.next()) is not None:
                self._archive.addfile(header, part.extractfile(header) if header.isreg() else None)
                self._forget(part)
                self._forget(self._archive)

    @staticmethod
    def _forget(archive: tarfile.TarFile) -> None:
        """Drop the list of members, which has no use here: that of a million files needs a gigabyte."""
        archive.members = []  # type: ignore[attr-defined]
