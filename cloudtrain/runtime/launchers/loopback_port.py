"""Keeps TensorFlow's server of a process on the loopback interface, if its address is there.

TensorFlow listens on all interfaces, whatever its address is, and executes the functions that it receives.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

POLL_SECONDS = 0.02
OFTEN_SECONDS = 120.0
"""Seconds after which the process looks less often."""
SO_BINDTODEVICE = 25


def keep_on_loopback(environ: Mapping[str, str]) -> None:
    """Watch, in a thread, for the socket of this process's task in ``TF_CONFIG``. Needs Linux 5.7."""
    import json
    import threading

    try:
        config = json.loads(environ["TF_CONFIG"])
        host, _, port = config["cluster"][config["task"]["type"]][config["task"]["index"]].rpartition(":")
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        return  # none, or one that the user has set
    if host == "127.0.0.1" and os.path.exists("/proc/self/net/tcp"):
        threading.Thread(target=_watch, args=(int(port),), name="tensorflow-port", daemon=True).start()


def _watch(port: int) -> None:
    often_until = time.monotonic() + OFTEN_SECONDS
    with contextlib.suppress(OSError):  # an old kernel
        while True:
            for descriptor in listeners(port):
                with socket.socket(fileno=os.dup(descriptor)) as listener:
                    listener.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, b"lo")
                return
            time.sleep(POLL_SECONDS if time.monotonic() < often_until else 1.0)


def listeners(port: int) -> list[int]:
    """The descriptors of this process that listen on all interfaces at a port."""
    places = (f" 00000000:{port:04X} ", f" {'0' * 32}:{port:04X} ")
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/net/{table}") as lines:
            for line in lines:
                if any(place in line for place in places):
                    columns = line.split()
                    if columns[3] == "0A":  # it listens
                        sockets.add(f"socket:[{columns[9]}]")
    found = []
    for name in os.listdir("/proc/self/fd") if sockets else ():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{name}") in sockets:
                found.append(int(name))
    return found
