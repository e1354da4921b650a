"""Files that appear under their name only when they are whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".cloudtrain-tmp-"
"""Names that begin so are never listed: what a killed process left, or what is not whole yet."""


def is_temporary(name: str) -> bool:
    """Whether the last part of a key or path marks something unfinished."""
    return name.startswith(TEMPORARY)


@contextlib.contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A free name in the folder of ``path``, which is made; whatever is left under that name is removed."""
    make_folder(path.parent)
    temporary = path.with_name(TEMPORARY + os.urandom(8).hex())
    try:
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def make_folder(folder: Path) -> None:
    """Make ``folder`` and those above it that are missing, each on the disk before what goes into it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def write_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path``, over what is there, all or nothing. Raises OSError."""
    with temporary_beside(path) as temporary:
        temporary.write_bytes(data)
        os.replace(temporary, path)


def sync(path: Path) -> None:
    """Wait until the file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
