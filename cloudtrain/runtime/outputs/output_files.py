"""Lists the outputs of a host, hashes them, and writes them to archives."""

from __future__ import annotations

import contextlib
import gzip
import os
import posixpath
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cloudtrain._system.safe_open import OUTWARD, Beneath, Refused, Skip, kind_of
from cloudtrain.contract import Paths
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.runtime.outputs.merge import FILE, FOLDER, KIND_FOLDERS, KINDS, LINK, OutputFile
from cloudtrain.runtime.outputs.unsupported_outputs import NOT_UTF_8, Skipped, is_utf_8, opened
from cloudtrain.storage.atomic import is_temporary
from cloudtrain.storage.uri import is_valid_key

CHUNK = 1 << 20
TEMPORARY = ".upload-"


@contextlib.contextmanager
def output_folder(paths: Paths, kind: str) -> Iterator[Beneath]:
    """Open the folder of a host's outputs of this kind. Raises OSError."""
    with Beneath(paths.base, [DEFAULT_BASE]) as base, base.inside(KIND_FOLDERS[kind]) as folder:
        yield folder


def list_outputs(paths: Paths, skipped: Skipped, *, archived: bool) -> list[OutputFile]:
    """The outputs of a host, sorted; a folder precedes its content.

    Args:
        skipped: collects entries that are neither files nor links within the same folder.
        archived: whether to list folders and symbolic links too. Otherwise, a link to a file counts as that file.
    """
    found: list[OutputFile] = []
    for kind in KINDS:
        try:
            with output_folder(paths, kind) as folder:
                found += _list(kind, folder, skipped, archived)
        except FileNotFoundError:
            pass
        except Refused:
            skipped.add_folder(KIND_FOLDERS[kind], _kind_of_folder(paths, kind))
    return found


def _kind_of_folder(paths: Paths, kind: str) -> str:
    """The kind of a file that exists instead of the folder of outputs; empty if there is none."""
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        return kind_of(base.status(KIND_FOLDERS[kind]).st_mode)
    return ""


def _list(kind: str, folder: Beneath, skipped: Skipped, archived: bool) -> Iterator[OutputFile]:
    def skip(key: str, why: str) -> None:
        skipped.add(f"{KIND_FOLDERS[kind]}/{key}", why)

    for found in folder.walk(skip):
        parent, _, name = found.key.rpartition("/")
        if found.is_folder:
            if archived:
                yield OutputFile(kind, found.key, FOLDER, None)
        elif is_temporary(name):
            continue
        elif not archived and not is_utf_8(found.key):
            skip(found.key, NOT_UTF_8)
        elif found.target is None:
            yield OutputFile(kind, found.key, FILE, found.status.st_size)
        elif archived:
            inner = folder.relative(found.target, parent)
            if inner is None:
                skip(found.key, OUTWARD)
            else:
                is_relative = not found.target.startswith("/")
                target = found.target if is_relative else posixpath.relpath(inner or ".", parent or ".")
                yield OutputFile(kind, found.key, LINK, target)
        else:
            with opened(folder, found.key, skip) as file:
                if file:
                    yield OutputFile(kind, found.key, FILE, os.fstat(file.fileno()).st_size)


@contextlib.contextmanager
def temporary_folder(scratch: Path) -> Iterator[Path]:
    """A folder in ``scratch`` for archives to upload. Removes the folder of a process that was killed."""
    for left in scratch.glob(f"{TEMPORARY}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=TEMPORARY) as folder:
        yield Path(folder)


class ArchiveWriter:
    """Writes a reproducible tar archive: its bytes depend only on the added entries, without owners or current time."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path, *, compressed: bool) -> Iterator[ArchiveWriter]:
        """Create the archive ``path``, with gzip if ``compressed``."""
        with contextlib.ExitStack() as stack:
            file: BinaryIO = stack.enter_context(open(path, "wb"))
            if compressed:
                # a higher level gains little, because weights hardly compress
                packed = gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0)
                file = stack.enter_context(packed)  # type: ignore[assignment]
            archive = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT, copybufsize=CHUNK)
            yield cls(stack.enter_context(archive))

    def add_files(self, folder: Beneath, files: Iterable[OutputFile], skip: Skip) -> None:
        """Add ``files`` below ``folder``. Skips those that no longer exist or whose type has changed."""
        for file in files:
            if file.type == FILE:
                with opened(folder, file.path, skip) as content:
                    if content:
                        header = self._archive.gettarinfo(arcname=file.path, fileobj=content)
                        self._add(header, content if header.isreg() else None)
                continue
            with contextlib.suppress(FileNotFoundError):
                header, status = tarfile.TarInfo(file.path), folder.status(file.path)
                header.mtime, header.mode = status.st_mtime, stat.S_IMODE(status.st_mode)
                header.type = tarfile.DIRTYPE if file.type == FOLDER else tarfile.SYMTYPE
                header.linkname = str(file.detail or "")
                self._add(header, None)

    def _add(self, header: tarfile.TarInfo, content: BinaryIO | None) -> None:
        header.uid = header.gid = 0
        header.uname = header.gname = ""
        header.mtime = int(header.mtime)
        self._archive.addfile(header, content)
        self._forget(self._archive)

    def add_archive(self, stream: BinaryIO) -> None:
        """Add the files, folders and links of an uncompressed tar archive, which is read once and sequentially.

        Skips entries that `add_files` does not write: devices, hard links, and names that lead outside.
        """
        with tarfile.open(fileobj=stream, mode="r|") as part:
            while (header := part.next()) is not None:
                if is_valid_key(header.name) and (header.isreg() or header.isdir() or header.issym()):
                    self._archive.addfile(header, part.extractfile(header) if header.isreg() else None)
                self._forget(part)
                self._forget(self._archive)

    @staticmethod
    def _forget(archive: tarfile.TarFile) -> None:
        """Drop the list of members, which is not needed here and takes a gigabyte for a million files."""
        archive.members = []  # type: ignore[attr-defined]
