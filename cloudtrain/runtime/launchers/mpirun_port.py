"""Closes the port of an mpirun that has one host.

Open MPI's daemons (ORTE, PRRTE) listen on all interfaces, whatever their settings say, and execute the commands of
anyone who connects. With one host, no daemon ever connects: the kernel can drop what arrives. mpirun itself would
fail without the socket. To MPICH's mpirun, its own proxy connects: its port is closed to other machines only.

This needs Linux 5.7, and is impossible where a container's profile forbids pidfd_getfd(2): see docs/security.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator

from cloudtrain._system.descriptors import copy_descriptor

TABLE = "/proc/{}/net/{}"
"""The sockets that a process sees (proc(5))."""
SO_ATTACH_FILTER, SO_BINDTODEVICE = 26, 25
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A socket filter (Linux, ``bpf(4)``) of one instruction: return 0, accept nothing."""
SECONDS = 20.0
"""How long mpirun may take to open its port."""
SECOND_PORT_SECONDS = 1.0
"""How long to look for the IPv6 port after the first one, for IPv4, was found."""
POLL_SECONDS = 0.002
EVERYWHERE = re.compile(r"0+")
LISTENING = "0A"
"""The state of a listening socket in ``/proc/net/tcp`` (proc(5))."""


def close_ports(pid: int, *, to_all: bool = True) -> None:
    """Close the ports that process ``pid`` opens on all interfaces, in a thread that waits for them.

    Args:
        to_all: also to this machine. Otherwise, to other machines.
    """
    if os.path.exists(TABLE.format(pid, "tcp")):
        threading.Thread(target=_watch, args=(pid, to_all), name="mpirun-ports", daemon=True).start()


def _watch(pid: int, to_all: bool) -> None:
    end = time.monotonic() + SECONDS
    closed: set[int] = set()
    with contextlib.suppress(OSError):  # the process has ended, or the kernel does not allow it
        while time.monotonic() < end:
            for descriptor in set(_open_everywhere(pid)) - closed:
                _close(pid, descriptor, to_all)
                if not closed:
                    end = time.monotonic() + SECOND_PORT_SECONDS
                closed.add(descriptor)
            time.sleep(POLL_SECONDS)


def _open_everywhere(pid: int) -> Iterator[int]:
    """The descriptors of the sockets with which a process listens on all interfaces."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(TABLE.format(pid, table)) as lines:
            for line in lines:
                words = line.split()
                if words[3] == LISTENING and EVERYWHERE.fullmatch(words[1].partition(":")[0]):
                    sockets.add(f"socket:[{words[9]}]")
    if sockets:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"/proc/{pid}/fd/{name}") in sockets:
                    yield int(name)


def _close(pid: int, descriptor: int, to_all: bool) -> None:
    """Raises OSError."""
    with socket.socket(fileno=copy_descriptor(pid, descriptor)) as listener:
        listener.setsockopt(
            socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo"
        )  # ss shows it, and it is enough to keep other machines out
        if not to_all:
            return
        instruction = ctypes.create_string_buffer(DROP_ALL, len(DROP_ALL))
        program = struct.pack("HP", 1, ctypes.addressof(instruction))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
