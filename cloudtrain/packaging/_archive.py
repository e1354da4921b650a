"""A ``sourcedir.tar.gz`` whose bytes depend on the tree alone (and on the version of zlib)."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from cloudtrain.packaging._gzip import gzip
from cloudtrain.packaging._tree import Changed, Entry, failed_read, signature

MODIFIED = 315_532_800
"""1980-01-01: the oldest time a wheel can hold, so that ``pip install .`` works on what was unpacked."""

_CHUNK = 1 << 20


def write_archive(entries: Iterable[Entry], file: BinaryIO) -> str:
    """Write the archive to ``file`` and return its SHA-256 in hexadecimal.

    Raises:
        InvalidSource: a file cannot be read.
        Changed: a file is no longer what the entry says.
        OSError: ``file`` cannot be written.
    """
    digest = hashlib.sha256()
    for data in gzip(_tar(entries)):
        digest.update(data)
        file.write(data)
    return digest.hexdigest()


def _tar(entries: Iterable[Entry]) -> Iterator[bytes]:
    for entry in entries:
        yield _header(entry).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if entry.is_file:
            yield from read_unchanged(entry)
            yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _header(entry: Entry) -> tarfile.TarInfo:
    header = tarfile.TarInfo(entry.name)
    header.mtime = MODIFIED
    header.mode = 0o644
    if entry.link is not None:
        header.type = tarfile.SYMTYPE
        header.linkname = entry.link
        header.mode = 0o777
    elif entry.is_folder:
        header.type = tarfile.DIRTYPE
        header.mode = 0o755
    else:
        header.size = entry.size
        if entry.stat.st_mode & 0o100:
            header.mode = 0o755
    return header


def read_unchanged(entry: Entry) -> Iterator[bytes]:
    """The file's content in chunks.

    Raises:
        InvalidSource: it cannot be read.
        Changed: it is not, or does not stay, what the entry says.
    """
    try:
        # O_NONBLOCK: do not wait for ever on what has become a fifo.
        descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise failed_read(entry.path, error) from error
    with open(descriptor, "rb", buffering=0) as file:
        _check_unchanged(entry, descriptor)
        left = entry.size
        while left:
            try:
                data = file.read(min(left, _CHUNK))
            except OSError as error:
                raise failed_read(entry.path, error) from error
            if not data:
                raise Changed(entry.path)
            left -= len(data)
            yield data
        _check_unchanged(entry, descriptor)


def _check_unchanged(entry: Entry, descriptor: int) -> None:
    if signature(os.fstat(descriptor)) != signature(entry.stat):
        raise Changed(entry.path)
