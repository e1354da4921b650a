"""Extracts a ``sourcedir.tar.gz`` without trusting its content."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from cloudtrain._system.users import group_id, user_id
from cloudtrain.contract.source import DEFAULT_LIMITS, SourceLimits
from cloudtrain.errors import InvalidSource, NotFound, StorageError
from cloudtrain.runtime.digest import sha256_of

_SUBMIT_AGAIN = "The archive was truncated or modified after it was packed. Submit the job again."
# tarfile raises the last four for absurd headers, such as invalid sizes, and hard links to themselves.
_DAMAGE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, OverflowError, MemoryError, RecursionError),
)

LARGEST_HEADER = 1 << 20
"""The limit for one header in bytes. tarfile reads files in smaller parts, and real headers are shorter."""
_HEADERS = 8192
"""The most bytes of the headers and the padding of a member. Long names and times need additional headers."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def unpack(
    archive: Path, folder: Path, sha256: str | None = None, limits: SourceLimits = DEFAULT_LIMITS
) -> None:
    """Extract ``archive`` into ``folder`` atomically.

    Args:
        folder: the folder to create. An existing one (of the image, or of an earlier attempt) is replaced, or remains
            unmodified if anything fails.
        sha256: the expected SHA-256 of the archive, in hexadecimal; None to skip the check.
        limits: the limits of the archive's content. A small archive can unpack to more than any disk has.

    Raises:
        NotFound: the archive does not exist.
        InvalidSource: a member would be extracted, or links, outside ``folder``, or is neither a file, a folder nor a
            link; or the archive exceeds ``limits``.
        StorageError: the archive is damaged, the disk is full, or ``folder`` cannot be written.
    """
    if not archive.is_file():
        raise NotFound(
            f"there is no source archive {archive}", hint="Submit the job again, which uploads it."
        )
    scratch = None
    try:
        if sha256 is not None and sha256_of(archive) != sha256:
            raise StorageError(f"{archive} does not have the SHA-256 {sha256}", hint=_SUBMIT_AGAIN)
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        new = scratch / "new"
        new.mkdir()
        new.chmod(0o755)
        _extract(archive, new, limits)
        _replace(folder, new, scratch / "old")
    except _DAMAGE as error:
        raise StorageError(f"{archive} is damaged: {error}", hint=_SUBMIT_AGAIN) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        hint = (
            "Free some space there, or request a larger volume_size."
            if error.errno in _FULL
            else "Check that the folder can be written, and that its file system accepts the names in the archive."
        )
        raise StorageError(f"cannot unpack {archive} into {folder}: {error.strerror}", hint=hint) from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Rename ``new`` to ``folder``. An existing folder is moved to ``old``, and back if the rename fails."""
    try:
        new.rename(folder)  # also replaces an empty folder: rename(2)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return
    # overlayfs cannot rename a folder of the image (EXDEV): shutil.move copies and removes it
    shutil.move(folder, old)
    try:
        new.rename(folder)
    except BaseException:
        shutil.move(old, folder)
        raise


class _Archive(tarfile.TarFile):
    """An archive that limits the size of a header. tarfile reads headers of any size into memory."""

    def next(self) -> tarfile.TarInfo | None:
        file = cast(_Limited, self.fileobj)
        file.left = LARGEST_HEADER
        try:
            return super().next()
        finally:
            file.left = None


class _Limited:
    """The decompressed archive, which cannot be read beyond the limits."""

    left: int | None = None
    """The bytes that may still be read; None for no limit."""

    def __init__(self, file: gzip.GzipFile, limits: SourceLimits) -> None:
        self._file = file
        self._limits = limits
        self._end = limits.size + limits.files * _HEADERS
        """The greatest length of an archive within the limits."""

    def read(self, size: int = -1) -> bytes:
        if self.left is not None:
            self.left -= size
        if size < 0 or (self.left is not None and self.left < 0):
            raise tarfile.ReadError(f"a header has more than {LARGEST_HEADER:,} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        # skips data by reading it; tarfile only seeks from the beginning
        if whence != os.SEEK_SET or offset > self._end:
            raise _too_large(self._limits, self._limits.size + 1, 0)
        return self._file.seek(offset)

    def tell(self) -> int:
        return self._file.tell()


def _extract(archive: Path, folder: Path, limits: SourceLimits) -> None:
    with gzip.GzipFile(archive) as zipped:
        file = cast(BinaryIO, _Limited(zipped, limits))
        with _Archive.open(fileobj=file, mode="r:") as tar:
            # Python's filter exists since 3.9.17, 3.10.12 and 3.11.4; `_checked` alone is equally strict.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder, members=_limited(_checked(tar), limits))
        # tarfile stops at its end mark; read on, so that gzip verifies its checksum.
        rest = limits.size
        while rest > 0 and (data := zipped.read(LARGEST_HEADER)):
            rest -= len(data)


def _limited(members: Iterable[tarfile.TarInfo], limits: SourceLimits) -> Iterator[tarfile.TarInfo]:
    """The members. Raises InvalidSource before the first one that exceeds a limit."""
    size = 0
    for number, member in enumerate(members, 1):
        size += max(0, member.size)
        if limits.exceeded(size, number):
            raise _too_large(limits, size, number)
        yield member


def _too_large(limits: SourceLimits, size: int, files: int) -> InvalidSource:
    problem, field = limits.exceeded(size, files) or ("too much", "max_source_size")
    return InvalidSource(
        f"the source archive contains {problem}",
        hint=f"If it is right, raise the job's {field}, and submit it again.",
    )


def _checked(members: Iterable[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
    """The members with safe attributes. Raises InvalidSource at the first unsafe member.

    The check uses names only, not the disk. No member may be at or below a link; a symbolic link may go up only at its
    beginning and not above the top; a hard link must name an earlier file. Therefore every name is what it appears to
    be, and every link stays inside.
    """
    taken: set[str] = set()
    links: set[str] = set()
    files: set[str] = set()
    now = time.time()
    for member in members:
        parts = _parts(member.name, member)
        paths = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        name = "/".join(parts)
        if not links.isdisjoint(paths):
            raise _refused(member, "is at or below a link")
        if (member.issym() or member.islnk()) and name in taken:
            raise _refused(member, "is a link with the name of another member")
        if member.issym():
            _check_target(member, len(parts) - 1)
            links.add(name)
        elif member.islnk():
            if "/".join(_parts(member.linkname, member)) not in files:
                raise _refused(member, "is a hard link to something that is not a file of the archive")
            files.add(name)
        elif member.isreg():
            files.add(name)
        elif not member.isdir():
            raise _refused(member, "is a device or a fifo")
        taken.update(paths)
        # no setuid; owned by this user; readable by all and writable by its owner only
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.uid, member.gid = user_id(), group_id()
        member.uname = member.gname = ""
        # Python trusts a cached .pyc if its source has the same size and time.
        member.mtime = now
        yield member


def _parts(name: str, member: tarfile.TarInfo) -> list[str]:
    """The parts of a relative path without "..". Raises InvalidSource for any other path."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or os.pardir in parts or "\0" in name:
        raise _refused(member, "is outside the archive")
    if not parts and not member.isdir():
        raise _refused(member, "has no name")
    return parts


def _check_target(member: tarfile.TarInfo, depth: int) -> None:
    """Check the target of a symbolic link. ``depth`` is the number of folders above the link.

    Raises InvalidSource if the target may be outside of the archive.
    """
    parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == os.pardir:
        ups += 1
    if member.linkname.startswith("/") or ups > depth or os.pardir in parts[ups:] or "\0" in member.linkname:
        raise _refused(member, f"is a link to a target outside the archive: {member.linkname!r}")


def _refused(member: tarfile.TarInfo, reason: str) -> InvalidSource:
    return InvalidSource(
        f"the source archive is not safe to unpack: {member.name!r} {reason}",
        hint="Pack the source again, with cloudtrain or the SageMaker SDK.",
    )
