"""Gives rank 0 the standard input of ``cloudtrain run``, with any launcher. All other ranks have no input.

A launcher cannot forward it: mpirun reads all of its input in advance, does not read a terminal in the background, and
with Open MPI 5 never closes the pipe of rank 0. The rank therefore receives the file descriptor itself.
"""

from __future__ import annotations

import contextlib
import os
import sys

from cloudtrain.runtime.run_folder import input_path

assert sys.platform != "win32", "jobs run on Linux and macOS"


def offer(folder: str) -> None:
    """Offer the standard input of this process to the first process that calls `take` with this run folder.

    Does nothing in the background of a terminal, because the shell reads its input.
    """
    import socket
    import threading

    if _is_in_background():
        return
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(input_path(folder))
    except OSError:  # its path is too long
        server.close()
        return
    server.listen(1)

    def give() -> None:
        with contextlib.suppress(OSError), server, server.accept()[0] as taker:
            socket.send_fds(taker, [b"0"], [0])

    threading.Thread(target=give, daemon=True).start()


def _is_in_background() -> bool:
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:  # not a terminal, or a terminal of another session
        return False


def take(folder: str, rank: int) -> None:
    """Replace the standard input of rank 0 with the offered one. Without an offer, and in other ranks, it is empty."""
    descriptor = _offered(folder) if rank == 0 else None
    if descriptor is None:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    os.dup2(descriptor, 0)
    os.close(descriptor)


def _offered(folder: str) -> int | None:
    if not os.path.exists(input_path(folder)):
        return None
    import socket

    with contextlib.suppress(OSError, IndexError), socket.socket(socket.AF_UNIX) as giver:
        giver.connect(input_path(folder))
        return socket.recv_fds(giver, 1, 1)[1][0]
    return None
