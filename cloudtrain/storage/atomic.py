"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from cloudtrain._system.files import lock, replace, sync
from cloudtrain._system.trees import remove_tree

TEMPORARY = ".cloudtrain-tmp-"
"""Prefix of temporary names, which are never listed: unfinished files, or leftovers of killed processes."""


FRESH_SECONDS = 5.0
"""A temporary file that was written to more recently may have a writer that has not locked it yet."""
UNLOCKED_SECONDS = 86400.0
"""The limit where files cannot be locked: no writer pauses for longer."""


def is_temporary(name: str) -> bool:
    """Whether the last part of a key or path is a temporary name."""
    return name.startswith(TEMPORARY)


def remove_abandoned(path: Path) -> bool:
    """Remove a temporary file unless its writer may be alive. Returns whether it is gone.

    A writer holds a lock (`_system.files.in_use`), which the kernel releases when it dies, on this machine or, with
    NFS, on another. Without locks, and between the creation of a file and its lock, the time of the last write decides.
    """
    try:
        with open(path, "rb+") as file:
            idle = time.time() - os.fstat(file.fileno()).st_mtime
            if idle < FRESH_SECONDS:
                return False
            try:
                is_free = lock(file.fileno(), wait=False)
            except OSError:
                is_free = idle > UNLOCKED_SECONDS
            if is_free:
                path.unlink()
            return is_free
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """An unused name in the folder of ``path``, which is created; a file left under that name is removed."""
    make_folder(path.parent)
    with _temporary(path) as temporary:
        yield temporary


def temporary_name() -> str:
    """A name that no file has, for a file or folder that is not complete yet."""
    return TEMPORARY + os.urandom(8).hex()


def publish(folder: Path, target: Path) -> None:
    """Atomically rename a complete folder. Raises FileExistsError if ``target`` exists and is not empty."""
    try:
        os.rename(folder, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        raise


def discard(folder: Path) -> None:
    """Remove a folder with its content: its name is free immediately, and it never appears half removed.

    Of several processes that do this, one does it and the others do nothing. Raises OSError.
    """
    rest = folder.with_name(temporary_name())
    try:
        os.rename(folder, rest)
    except FileNotFoundError:
        return
    remove_tree(rest)


def write_file(path: Path, data: bytes) -> None:
    """Atomically create or replace the file ``path``, and its folder if necessary. Raises OSError."""
    make_folder(path.parent)
    replace_file(path, data)


def replace_file(path: Path, data: bytes, *, mode: int = 0o666, fsync: bool = False) -> None:
    """Atomically create or replace the file ``path`` in an existing folder. Raises OSError.

    Args:
        mode: permissions of the file at every moment, subject to the umask.
        fsync: wait until the data are on disk, for files that must survive a crash of the machine.
    """
    with _temporary(path) as temporary:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        replace(temporary, path)


def write_private(path: Path, text: str) -> None:
    """Replace a file in an existing folder atomically. Only its owner can read it, at any time. Raises OSError."""
    replace_file(path, text.encode(), mode=0o600)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its missing parents, each synced to disk before anything is written into it."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    temporary = path.with_name(temporary_name())
    try:
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
