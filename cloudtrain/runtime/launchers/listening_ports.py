"""Closes ports that TensorFlow and mpirun open on all interfaces.

The TensorFlow server in a process listens on all interfaces, regardless of its address, and executes functions that it
receives. Its socket is therefore bound to the loopback interface if its address is a loopback address.

Open MPI's daemons (ORTE, PRRTE) listen on all interfaces, regardless of their settings, and execute the commands of
anyone who connects. With one host, no daemon ever connects, so the kernel may drop all packets; without the socket,
mpirun itself would fail. The port of MPICH's mpirun is closed only to other machines, because its own proxy connects.

This requires Linux 5.7. For mpirun, it is impossible in containers whose profile forbids pidfd_getfd(2): see
docs/security.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TABLE = "/proc/{}/net/{}"
"""The table of the sockets in a process's network namespace (proc(5))."""
LISTENING = "0A"
"""The state of a listening socket in that table."""
SO_ATTACH_FILTER, SO_BINDTODEVICE = 26, 25

TASK_POLL_SECONDS = 0.02
OFTEN_SECONDS = 120.0
"""Seconds after which a process polls less often for the port of its task."""
MPIRUN_SECONDS = 20.0
"""The time that mpirun may take to open its port."""
SECOND_PORT_SECONDS = 1.0
"""The time to wait for the IPv6 port after the first port, for IPv4, was found."""
MPIRUN_POLL_SECONDS = 0.002


def listeners(process: int | str, port: int | None = None) -> Iterator[int]:
    """The descriptors of the sockets with which a process listens on all interfaces, at ``port`` or any port."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(TABLE.format(process, table)) as lines:
            for line in lines:
                columns = line.split()
                address, _, number = columns[1].partition(":")
                if columns[3] != LISTENING or address.strip("0"):
                    continue
                if port is None or int(number, 16) == port:
                    sockets.add(f"socket:[{columns[9]}]")
    for name in os.listdir(f"/proc/{process}/fd") if sockets else ():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/{process}/fd/{name}") in sockets:
                yield int(name)


def keep_on_loopback(environ: Mapping[str, str]) -> None:
    """Wait, in a thread, for the socket of this process's task in ``TF_CONFIG``, and bind it to the loopback interface.

    Requires Linux 5.7.
    """
    import json
    import threading

    try:
        config = json.loads(environ["TF_CONFIG"])
        host, _, port = config["cluster"][config["task"]["type"]][config["task"]["index"]].rpartition(":")
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        return  # there is no TF_CONFIG, or the user has set one
    if host == "127.0.0.1" and os.path.exists("/proc/self/net/tcp"):
        threading.Thread(target=_watch_task, args=(int(port),), name="tensorflow-port", daemon=True).start()


def _watch_task(port: int) -> None:
    often_until = time.monotonic() + OFTEN_SECONDS
    with contextlib.suppress(OSError):  # an old kernel
        while True:
            for descriptor in listeners("self", port):
                with socket.socket(fileno=os.dup(descriptor)) as listener:
                    listener.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo")
                return
            time.sleep(TASK_POLL_SECONDS if time.monotonic() < often_until else 1.0)


def close_ports(pid: int, *, to_all: bool = True) -> None:
    """Close the ports that process ``pid`` opens on all interfaces, in a thread that waits for them.

    Args:
        to_all: whether to close them to this machine too, and not only to others.
    """
    if os.path.exists(TABLE.format(pid, "tcp")):
        import threading

        threading.Thread(target=_watch_mpirun, args=(pid, to_all), name="mpirun-ports", daemon=True).start()


def _watch_mpirun(pid: int, to_all: bool) -> None:
    end = time.monotonic() + MPIRUN_SECONDS
    closed: set[int] = set()
    with contextlib.suppress(OSError):  # the process has ended, or the kernel does not allow it
        while time.monotonic() < end:
            for descriptor in set(listeners(pid)) - closed:
                _close(pid, descriptor, to_all)
                if not closed:
                    end = time.monotonic() + SECOND_PORT_SECONDS
                closed.add(descriptor)
            time.sleep(MPIRUN_POLL_SECONDS)


def _close(pid: int, descriptor: int, to_all: bool) -> None:
    """Raises OSError."""
    import ctypes
    import struct

    from cloudtrain._system.descriptors import copy_descriptor

    with socket.socket(fileno=copy_descriptor(pid, descriptor)) as listener:
        listener.setsockopt(
            socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo"
        )  # ss shows this, and it suffices to keep other machines out
        if not to_all:
            return
        drop_all = struct.pack("HBBI", 0x06, 0, 0, 0)  # bpf(4): return 0, accept nothing
        instruction = ctypes.create_string_buffer(drop_all, len(drop_all))
        program = struct.pack("HP", 1, ctypes.addressof(instruction))
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
