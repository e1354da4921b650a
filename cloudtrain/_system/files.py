"""Files: flags, locks, atomic replacement, durability."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

READ_REGULAR = (
    os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)
"""Flags of `os.open` to read a regular file. Opening a link fails, and opening a FIFO does not block."""

NOT_A_FILE = (errno.EINVAL, errno.ELOOP, errno.EISDIR, errno.ENXIO)
"""The errors of `open_regular` for a link, a folder, a named pipe, a socket or a device."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | READ_REGULAR

REPLACE_SECONDS = 2.0
"""How long `replace` waits on Windows for another process to close the target."""

_EXECUTABLE = (b"#!", b"\x7fELF")
"""The first bytes of programs that Linux executes: a script that names its interpreter, and a binary."""


def read_regular(path: str | Path, largest: int) -> bytes:
    """The content of a regular file. Raises OSError, also for links, for other kinds of files, and for larger ones."""
    descriptor, seen = _open_regular(path, READ_REGULAR)  # few calls: a list of jobs reads thousands
    try:
        if seen.st_size > largest:
            raise OSError(errno.EFBIG, f"it has more than {largest} bytes", str(path))
        data = os.read(descriptor, seen.st_size)
        while len(data) < seen.st_size and (more := os.read(descriptor, seen.st_size - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def open_to_append(path: str | Path, mode: int = 0o666) -> int:
    """The descriptor of a regular file, created if necessary, for appending whole lines. Raises OSError."""
    return open_regular(path, _APPEND, mode)


def append_lines(descriptor: int, lines: bytes) -> None:
    """Append whole lines in one write, and first end a line that a full disk has cut.

    Args:
        descriptor: from `open_to_append`.

    Raises:
        OSError: it failed, or only a part was written.
    """
    if os.lseek(descriptor, 0, os.SEEK_END):
        os.lseek(descriptor, -1, os.SEEK_END)
        if os.read(descriptor, 1) not in (b"\n", b""):
            lines = b"\n" + lines
    if os.write(descriptor, lines) != len(lines):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def open_regular(path: str | Path, flags: int, mode: int = 0o666, *, folder: int | None = None) -> int:
    """Like `os.open`, with at least the flags of `READ_REGULAR`. Raises OSError for anything but a regular file."""
    return _open_regular(path, flags, mode, folder)[0]


def _open_regular(
    path: str | Path, flags: int, mode: int = 0o666, folder: int | None = None
) -> tuple[int, os.stat_result]:
    descriptor = os.open(path, flags, mode, dir_fd=folder)
    try:
        seen = os.fstat(descriptor)
        if stat.S_ISREG(seen.st_mode):
            return descriptor, seen
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


if sys.platform == "win32":

    def lock(descriptor: int, *, wait: bool = True, shared: bool = False) -> bool:
        """Windows has no locks that child processes inherit. Raises OSError."""
        raise OSError(errno.ENOSYS, "this system cannot lock files")

    def unlock(descriptor: int) -> None:
        """Does nothing: Windows has no such locks."""

    def write_at(descriptor: int, data: bytes, offset: int) -> None:
        """Jobs do not run on Windows. Raises OSError."""
        raise OSError(errno.ENOSYS, "jobs run on Linux and macOS")

    def in_use(path: Path) -> contextlib.AbstractContextManager[None]:
        """Does nothing, because Windows cannot rename an open file."""
        return contextlib.nullcontext()

    def sync(path: Path) -> None:
        """Wait until the file is on disk. Windows cannot do this for a folder."""
        if path.is_dir():
            return
        descriptor = os.open(path, os.O_RDWR)  # only a writable file can be synced
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(source: Path, target: Path) -> None:
        """Atomically rename ``source`` to ``target``, and replace an existing file.

        Windows refuses this while another process, such as a virus scanner, has the target open; waits a little for it.
        """
        deadline = time.monotonic() + REPLACE_SECONDS
        while True:
            try:
                os.replace(source, target)
            except PermissionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def signature(status: os.stat_result) -> tuple[int, ...]:
        """Stat data that changes whenever the content of a file changes.

        It omits the mode, which Windows derives from the file's name, which an open file lacks; and the time of change,
        which Windows does not have.
        """
        return (status.st_size, status.st_mtime_ns, status.st_ino)

    def is_executable(status: os.stat_result, beginning: bytes) -> bool:
        """Whether Linux could execute the file, by its ``beginning``. Windows has no permission for that."""
        return beginning.startswith(_EXECUTABLE)

else:

    def write_at(descriptor: int, data: bytes, offset: int) -> None:
        """Write ``data`` at an offset of a file in one step. Raises OSError."""
        os.pwrite(descriptor, data, offset)

    def lock(descriptor: int, *, wait: bool = True, shared: bool = False) -> bool:
        """Lock an open file; returns False if another process has locked it and this one does not ``wait``.

        A child that inherits the descriptor also holds the lock. The kernel releases it when the last holder ends.
        """
        import fcntl  # imported here: a client that locks nothing does not need it

        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Release a lock now, even if a memory map or a child keeps the file open."""
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def in_use(path: Path) -> Iterator[None]:
        """Create a file that is about to be written, and lock it during the block, if the file system has locks."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):
                lock(descriptor, wait=False)
            yield
        finally:
            os.close(descriptor)

    def sync(path: Path) -> None:
        """Wait until the file or folder is on disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(source: Path, target: Path) -> None:
        """Atomically rename ``source`` to ``target``, and replace an existing file."""
        os.replace(source, target)

    def signature(status: os.stat_result) -> tuple[int, ...]:
        """Stat data that changes whenever the content or the mode of a file changes."""
        return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)

    def is_executable(status: os.stat_result, beginning: bytes) -> bool:
        """Whether Linux could execute the file: by its permissions, or by its ``beginning``, as on Windows."""
        return bool(status.st_mode & 0o100) or beginning.startswith(_EXECUTABLE)
