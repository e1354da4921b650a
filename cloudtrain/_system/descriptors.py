"""File descriptors: pipes with names, and passing descriptors to another process."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

LEAST_OPEN_FILES = 64


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, in several steps if necessary. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


if sys.platform == "win32":

    def check_open_files() -> None:
        """Windows has no such limit."""

    def _unavailable(*_arguments: Any) -> Any:
        raise OSError(errno.ENOSYS, "jobs run on Linux and macOS")

    def unread(pipe: int) -> int:
        """Raises OSError."""
        raise OSError(errno.ENOSYS, "jobs run on Linux and macOS")

    def wait_for_data(_descriptor: int, _seconds: float) -> bool:
        """Return immediately, as Windows cannot wait for a pipe: the caller's read waits, without a limit."""
        return True

    open_named_pipe = set_blocking = send_descriptors = receive_descriptors = _unavailable
    make_pipe = set_permissions = _unavailable

else:

    def check_open_files() -> None:
        """Raises OSError if this process can open too few files to run a job, which would hang at some point."""
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= most < LEAST_OPEN_FILES:  # -1 means unlimited
            raise OSError(
                f"this process can open only {most} files, and a job needs {LEAST_OPEN_FILES}: raise ulimit -n"
            )

    def open_named_pipe(path: str) -> int:
        """Create a named pipe, and open it for reading without blocking.

        It is opened for writing too, so that opening does not block, and the exit of a writer causes no end of file.
        """
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def make_pipe(path: Path, folder: int, name: str) -> None:
        """Create a named pipe in a folder, given by its path and its descriptor. Raises OSError."""
        if os.mkfifo in os.supports_dir_fd:
            os.mkfifo(name, 0o600, dir_fd=folder)
        else:  # older releases of macOS
            os.mkfifo(path / name, 0o600)

    def set_permissions(descriptor: int, mode: int) -> None:
        """Give an open file or folder these permissions, regardless of the umask. Raises OSError."""
        os.fchmod(descriptor, mode)

    def unread(pipe: int) -> int:
        """The bytes that were written to the pipe and have not been read. Raises OSError."""
        import fcntl
        import termios

        return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])

    def wait_for_data(descriptor: int, seconds: float) -> bool:
        """Wait until a pipe has data or is closed, at most ``seconds``. Returns whether it does before then."""
        import select

        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(1000 * seconds))

    def set_blocking(descriptor: int, blocking: bool) -> None:
        os.set_blocking(descriptor, blocking)

    def send_descriptors(connection: socket.socket, data: bytes, descriptors: list[int]) -> None:
        """Send ``data`` and open files over a Unix socket."""
        socket.send_fds(connection, [data], descriptors)

    def receive_descriptors(connection: socket.socket, size: int, count: int) -> tuple[bytes, list[int]]:
        """The data and the files that `send_descriptors` sent."""
        data, descriptors, _, _ = socket.recv_fds(connection, size, count)
        return data, descriptors


if sys.platform == "linux":
    _PIDFD_GETFD = 438
    """The number of pidfd_getfd(2), on all processors."""

    def copy_descriptor(pid: int, descriptor: int) -> int:
        """A copy of the ``descriptor`` of a child process. Raises OSError, always before Linux 5.6."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        process = os.pidfd_open(pid)
        try:
            copy: int = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
        finally:
            os.close(process)
        if copy < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return copy

else:

    def copy_descriptor(pid: int, descriptor: int) -> int:
        """Raises OSError."""
        raise OSError(errno.ENOSYS, "only Linux copies the descriptors of another process")
