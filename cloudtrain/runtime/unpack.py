"""Extraction of a ``sourcedir.tar.gz`` that trusts nothing in it."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from cloudtrain.errors import InvalidSource, NotFound, StorageError

_SUBMIT_AGAIN = "The archive was cut off or changed on its way. Submit the job again."
# The last three come from tarfile too, where the header of a member names an absurd size.
_DAMAGE = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError),
    *(ValueError, OverflowError, MemoryError),
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def unpack(archive: Path, folder: Path, sha256: str | None = None) -> None:
    """Extract ``archive`` into ``folder``, which appears only when all of it is there.

    Args:
        folder: where there is one already (an image's own, an earlier attempt's), it is replaced as a whole,
            and stays as it is if anything fails.
        sha256: what the archive's SHA-256 must be, in hexadecimal; None to take it as it is.

    Raises:
        NotFound: there is no such archive.
        InvalidSource: something in the archive would land, or leads, outside of ``folder``, or is neither
            file, folder nor link.
        StorageError: the archive is damaged, the disk is full, or ``folder`` cannot be written.
    """
    if not archive.is_file():
        raise NotFound(f"there is no source archive {archive}")
    scratch = None
    try:
        if sha256 is not None and _sha256(archive) != sha256:
            raise StorageError(f"{archive} does not have the SHA-256 {sha256}", hint=_SUBMIT_AGAIN)
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        new = scratch / "new"
        new.mkdir()
        new.chmod(0o755)
        _extract(archive, new)
        _replace(folder, new, scratch / "old")
    except _DAMAGE as error:
        raise StorageError(f"{archive} is damaged: {error}", hint=_SUBMIT_AGAIN) from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        hint = "Free space there, or ask for a larger volume_size." if error.errno in _FULL else ""
        raise StorageError(f"cannot unpack {archive} into {folder}: {error.strerror}", hint=hint) from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Rename ``new`` to ``folder``, whatever stands there; that is moved to ``old``, and back if this fails."""
    try:
        new.rename(folder)  # over an empty folder, too: rename(2)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    else:
        return
    # overlayfs cannot rename a folder of the image (EXDEV): it is then copied and removed
    shutil.move(folder, old)
    try:
        new.rename(folder)
    except BaseException:
        shutil.move(old, folder)
        raise


def _sha256(path: Path) -> str:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            hasher.update(chunk)
    return hasher.hexdigest()


def _extract(archive: Path, folder: Path) -> None:
    with gzip.open(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
        # Python's own filter where there is one (from 3.9.17, 3.10.12, 3.11.4 on); `_checked` alone is as strict.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder, members=_checked(tar))
        # tarfile stops at its own end mark. gzip's checksum comes after it.
        while file.read(1 << 20):
            pass


def _checked(members: Iterable[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
    """The members, made harmless. Raises InvalidSource at the first that cannot be.

    By names alone, without a look at the disk: nothing stands at or below a link, a symbolic link goes up
    only at its beginning and not past the top, and a hard link names a file that came before. So every name
    is where it says, and every link stays inside.
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
            raise _refused(member, "stands at or below a link")
        if member.issym():
            if name in taken:
                raise _refused(member, "is a link where something else stands")
            _check_target(member, len(parts) - 1)
            links.add(name)
        elif member.islnk():
            if "/".join(_parts(member.linkname, member)) not in files:
                raise _refused(member, "is a hard link to what is no file in it")
            files.add(name)
        elif member.isreg():
            files.add(name)
        elif not member.isdir():
            raise _refused(member, "is a device or a fifo")
        taken.update(paths)
        # No setuid, nobody else's file, and always readable and writable by its owner.
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.uid, member.gid = os.getuid(), os.getgid()
        member.uname = member.gname = ""
        # Python believes a cached .pyc whose source has the same size and time.
        member.mtime = now
        yield member


def _parts(name: str, member: tarfile.TarInfo) -> list[str]:
    """The parts of a relative path that only goes down."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or os.pardir in parts or "\0" in name:
        raise _refused(member, "leads out of the archive")
    if not parts and not member.isdir():
        raise _refused(member, "has no name")
    return parts


def _check_target(member: tarfile.TarInfo, depth: int) -> None:
    """``depth`` is the number of folders above the symbolic link ``member``."""
    parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == os.pardir:
        ups += 1
    if member.linkname.startswith("/") or ups > depth or os.pardir in parts[ups:] or "\0" in member.linkname:
        raise _refused(member, f"is a link that leads out of it, to {member.linkname!r}")


def _refused(member: tarfile.TarInfo, reason: str) -> InvalidSource:
    return InvalidSource(
        f"the source archive is not safe to unpack: {member.name!r} {reason}",
        hint="Pack the source again, with cloudtrain or the SageMaker SDK.",
    )
