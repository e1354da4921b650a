"""Reads the bytes that processes have sent and received on TCP connections, through sock_diag(7), as ss(8) does.

The counters of network interfaces are totals of all programs on a machine, but these are of single processes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from cloudtrain._dataclass import dataclass

SOCK_DIAG, BY_FAMILY = 4, 20
"""NETLINK_SOCK_DIAG and SOCK_DIAG_BY_FAMILY, from linux/netlink.h and linux/sock_diag.h."""
REQUEST, DUMP = 0x1, 0x300
ERROR, DONE = 2, 3
TCP_INFO = 2
"""The attribute INET_DIAG_INFO, from linux/inet_diag.h, whose value is a ``tcp_info``."""
OPEN = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
"""The states of TCP connections that are established, or that one side has closed."""
STATES = {socket.IPPROTO_TCP: OPEN, socket.IPPROTO_UDP: 0xFFFFFFFF}
INODE_AT, ATTRIBUTES_AT, BYTES_AT = 68, 72, 120
"""The offsets of the inode and the attributes in a message, and of the bytes sent and received in a ``tcp_info``."""
SECONDS = 1.0
"""The time that the kernel may take to respond."""
PART = 1 << 18


@dataclass(frozen=True)
class Connections:
    """The connections of this network namespace at one moment, by the inode of their sockets."""

    moved: Mapping[int, int]
    """The bytes that each TCP connection has sent and received."""
    uncounted: frozenset[int]
    """UDP sockets, whose bytes the kernel does not count."""

    def of(self, sockets: set[int]) -> dict[int, int] | None:
        """The bytes of these sockets; None if they are unknown."""
        if sockets & self.uncounted:
            return None
        return {inode: self.moved[inode] for inode in sockets if inode in self.moved}


def read_connections() -> Connections | None:
    """The connections of all processes; None if the kernel does not list them, as on macOS and in some sandboxes."""
    moved: dict[int, int] = {}
    uncounted = set()
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
            kernel.settimeout(SECONDS)
            for family in (socket.AF_INET, socket.AF_INET6):
                for message in _dump(kernel, family, socket.IPPROTO_TCP):
                    inode = _number(message, INODE_AT, 4)
                    if inode:  # it is 0 if no process has the socket open any longer
                        moved[inode] = _bytes(message)
                found = _dump(kernel, family, socket.IPPROTO_UDP)
                uncounted |= {_number(message, INODE_AT, 4) for message in found}
    except (OSError, AttributeError, ValueError, struct.error):
        return None
    return Connections(moved, frozenset(uncounted))


def sockets_of(process: Path) -> set[int] | None:
    """The inodes of the sockets that a process has open; None if they cannot be read.

    Also returns None for a process in another network namespace, whose connections `read_connections` does not find.

    Args:
        process: the folder of the process in the proc file system.
    """
    found = set()
    try:
        descriptors = os.listdir(process / "fd")
        if os.readlink(process / "ns" / "net") != os.readlink(process.parent / "self" / "ns" / "net"):
            return None
    except OSError:
        return None
    for name in descriptors:
        with contextlib.suppress(OSError, ValueError):
            kind, _, inode = os.readlink(process / "fd" / name).partition(":[")
            if kind == "socket":
                found.add(int(inode.rstrip("]")))
    return found


def _dump(kernel: socket.socket, family: int, protocol: int) -> Iterator[bytes]:
    """The ``inet_diag_msg`` of each socket, with its attributes."""
    wanted = struct.pack("=BBBxI48x", family, protocol, 1 << (TCP_INFO - 1), STATES[protocol])
    kernel.send(struct.pack("=IHHII", 16 + len(wanted), BY_FAMILY, REQUEST | DUMP, 0, 0) + wanted)
    while True:
        answer = kernel.recv(PART)
        at = 0
        while at < len(answer):
            size, kind = struct.unpack_from("=IH", answer, at)
            if kind == DONE:
                return
            if kind == ERROR or size < 16:
                raise OSError("the kernel does not list its sockets")
            yield answer[at + 16 : at + size]
            at += (size + 3) & ~3


def _bytes(message: bytes) -> int:
    """The bytes sent and received, from a message about a TCP connection."""
    at = ATTRIBUTES_AT
    while at + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if kind == TCP_INFO:
            begin = at + 4 + BYTES_AT
            return _number(message, begin, 8) + _number(message, begin + 8, 8)
        at += max((size + 3) & ~3, 4)
    raise ValueError("a connection without counters")


def _number(message: bytes, at: int, size: int) -> int:
    found: int = struct.unpack_from("=I" if size == 4 else "=Q", message, at)[0]
    return found
