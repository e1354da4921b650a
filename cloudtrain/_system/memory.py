"""Memory of one process, and memory that the processes of a machine share."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import socket
import sys
from typing import Any

from cloudtrain._system.descriptors import receive_descriptors, send_descriptors


def close_memory() -> None:
    """Keep other processes of this user from tracing this one, and from reading its memory or initial environment."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE, prctl(2)


if sys.platform == "win32":

    def private_memory(nbytes: int) -> mmap.mmap:
        """Zeroed memory of this process."""
        return mmap.mmap(-1, nbytes)

else:

    def private_memory(nbytes: int) -> mmap.mmap:
        """Zeroed memory of this process, which forked children do not see, in huge pages where available."""
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # Forked children, such as data loaders, must not cause copy-on-write of every page.
        for advice in ("MADV_DONTFORK", "MADV_HUGEPAGE"):
            if hasattr(mmap, advice):
                memory.madvise(getattr(mmap, advice))
        return memory


if sys.platform == "linux":
    SHARED_MEMORY = "/dev/shm"
    """The folder of a file system in memory; empty where there is none."""

    def shared_file(descriptor: int, nbytes: int) -> mmap.mmap:
        """Extend a file to this size, and map it into memory. Raises OSError if there is no space for it."""
        os.posix_fallocate(descriptor, 0, nbytes)  # fail now, not with a SIGBUS later
        memory = mmap.mmap(descriptor, nbytes)
        for advice in ("MADV_DONTFORK", "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):
                memory.madvise(getattr(mmap, advice))
        return memory

    def make_shared(length: int) -> tuple[mmap.mmap, int]:
        """Anonymous shared memory, and its descriptor. Raises OSError."""
        descriptor = os.memfd_create("cloudtrain")
        try:
            os.posix_fallocate(descriptor, 0, length)  # fail now, not with a SIGBUS later
            return mmap.mmap(descriptor, length), descriptor
        except BaseException:
            os.close(descriptor)
            raise

    def listen(name: str, backlog: int) -> socket.socket:
        """A socket on which processes of this machine can connect to this one. Raises OSError."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(_address(name))
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
        return listener

    def connect(name: str, timeout: float) -> socket.socket:
        """A connection to the socket of this name. Raises OSError."""
        peer = socket.socket(socket.AF_UNIX)
        try:
            peer.settimeout(timeout)
            peer.connect(_address(name))
        except BaseException:
            peer.close()
            raise
        return peer

    def is_own_process(peer: socket.socket) -> bool:
        """Whether the peer is a process of this user: other users of the machine can see the address."""
        credentials = peer.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, 12
        )  # unix(7): process, user, group
        return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()

    def send_descriptor(peer: socket.socket, descriptor: int) -> None:
        """Raises OSError."""
        send_descriptors(peer, b".", [descriptor])

    def receive_descriptor(peer: socket.socket) -> int:
        """Raises OSError, or ValueError if the peer sent none."""
        _, (descriptor,) = receive_descriptors(peer, 1, 1)
        return descriptor

    def _address(name: str) -> str:
        """An abstract address (unix(7)): it has no file and disappears with its sockets."""
        return f"\0cloudtrain-{name}"

else:
    SHARED_MEMORY = ""

    def _unavailable(*_arguments: Any) -> Any:
        raise OSError(errno.ENOSYS, "memory without a name exists on Linux only")

    shared_file = make_shared = listen = connect = is_own_process = send_descriptor = receive_descriptor = (
        _unavailable
    )
