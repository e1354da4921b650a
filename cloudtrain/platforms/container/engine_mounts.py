"""Finds out whether a container engine sees what this process mounts."""

from __future__ import annotations

import contextlib
import socket
import struct
from pathlib import Path
from urllib.parse import urlsplit

from cloudtrain._system.sockets import connect_unix
from cloudtrain.storage.mount import mounts_below

PATIENCE = 10.0
"""Seconds that the engine has to accept a connection."""


def engine_sees(url: str, mount: Path) -> bool:
    """Whether the engine at ``url`` sees ``mount``.

    An engine may run on another machine, in a virtual machine, or in another mount namespace. It would then silently
    give containers the empty folder below the mount. False if this is not known.
    """
    parts = urlsplit(url)
    peer = getattr(socket, "SO_PEERCRED", None)  # Linux
    if peer is None or parts.scheme != "unix":
        return False
    with contextlib.suppress(OSError), connect_unix(parts.path, PATIENCE) as connection:
        size = struct.calcsize("3i")
        process, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, peer, size))
        return mount in mounts_below(mount, Path(f"/proc/{process}/mountinfo"))
    return False
