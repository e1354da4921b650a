"""The files of copies in the memory folder of a host.

    space                       the bytes that further copies may use; empty once the runtime has given the copies up
    <uri>-<rank>-<slot>.data    the bytes of the tensors, locked while a process uses them
    <uri>-<rank>-<slot>.json    the header, only while the data is whole
    <uri>.committed             see `cloudtrain.checkpoint.memory.committed`

A rank writes to the slots in turn. It removes the header before it touches the data, so that a kill at any instant
leaves the other copy whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cloudtrain._system.files import READ_REGULAR, lock, open_regular, read_regular, unlock
from cloudtrain.checkpoint.errors import Damaged, InUse

if TYPE_CHECKING:
    from cloudtrain.checkpoint.memory.header import Header

VARIABLE = "CLOUDTRAIN_CHECKPOINT_MEMORY"
"""For ranks: the memory folder of their host. A job sets it to ``off``, or to the file system for that folder."""
OFF = "off"
SPACE = "space"

_HEADER = re.compile(r"[0-9a-f]{16}-\d+-\d+\.json")


def memory_folder(environ: Mapping[str, str]) -> Path | None:
    """The memory folder of this host; None if there is none that only this user can write to."""
    name = environ.get(VARIABLE, "")
    if not os.path.isabs(name):
        return None
    return Path(name) if is_private(name) else None


def is_private(folder: str | Path) -> bool:
    """Whether this is a folder of this user that no other user can access."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def space_in(folder: Path) -> int:
    """The bytes that further copies may use; -1 if the runtime has given the copies up."""
    try:
        return int(read_regular(folder / SPACE, 100))
    except (OSError, ValueError):
        return -1


def name_of(uri: str) -> str:
    """The first part of the names of the files for ``uri``."""
    return hashlib.sha256(uri.encode()).hexdigest()[:16]


def slot_path(folder: Path, uri: str, rank: int, slot: int) -> Path:
    """The path of a copy, without a suffix."""
    return folder / f"{name_of(uri)}-{rank}-{slot}"


def header_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def data_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


def read_headers(
    folder: Path, damaged: list[tuple[Path, str]] | None = None
) -> Iterator[tuple[Path, Header]]:
    """The whole copies: the path of each without a suffix, and its header.

    Args:
        damaged: receives the path of each copy whose header is damaged, and the problem.
    """
    from cloudtrain.checkpoint.memory.header import (
        LARGEST_HEADER,
        Header,
    )  # every runtime loads this module, but few read copies

    for name in sorted(os.listdir(folder)):
        if _HEADER.fullmatch(name):
            path = folder / name[:-5]
            try:
                header = Header.from_bytes(read_regular(folder / name, LARGEST_HEADER))
            except OSError:
                continue
            except Damaged as error:
                if damaged is not None:
                    damaged.append((path, error.message))
                continue
            yield path, header


def remove_header(path: Path) -> None:
    """Remove the header, so that the data no longer counts as a copy. Raises OSError."""
    header_path(path).unlink(missing_ok=True)


def saver_of(path: Path) -> str:
    """The part of a copy's name for its URI and rank, which is the same for all slots."""
    return path.name.rpartition("-")[0]


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file, or a folder that the script has made in its place. Raises OSError."""
    temporary = path.with_name(f"{path.name}.new")
    for one in (path, temporary):
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)


@contextlib.contextmanager
def read_data(path: Path) -> Iterator[memoryview]:
    """The bytes of a copy, locked against changes. Raises InUse if another process uses it, Damaged if it is gone."""
    try:
        descriptor = open_regular(data_path(path), READ_REGULAR | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from error
    try:
        if not lock(descriptor, wait=False, shared=True):
            raise InUse(f"another process uses {path.name}")
        size = os.fstat(descriptor).st_size
        yield memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    finally:
        unlock(descriptor)
        os.close(descriptor)
