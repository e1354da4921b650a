"""The mounts of a process, and the kind of file system of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_ON_SERVERS = ("nfs", "nfs4", "cifs", "smb3", "afs", "9p", "efs", "virtiofs")
_ON_CLUSTERS = ("lustre", "gpfs", "beegfs", "ceph", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs")
NETWORK = frozenset((*_ON_SERVERS, *_ON_CLUSTERS))
"""The types of network file systems; those of FUSE count too."""


def read_mounts(table: Path) -> Iterator[tuple[str, str]]:
    """The folder and the type of each mount, in order; empty if there is no table, as on other systems.

    Args:
        table: ``/proc/PID/mountinfo`` (proc(5)).
    """
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(b" ")
        point = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1"))
        yield point, os.fsdecode(fields[fields.index(b"-") + 1])


def is_on_network(folder: str, table: Path | None = None) -> bool:
    """Whether a folder is on a network file system, where a file is unsuitable as shared memory.

    Args:
        table: the file with the mounts (proc(5)), by default those of this process. Returns False where it does not
            exist, as on other systems.
    """
    return is_below_network_mount(os.path.realpath(folder), read_mounts(table or MOUNTS))


def is_below_network_mount(path: str, mounts: Iterable[tuple[str, str]]) -> bool:
    """Like `is_on_network`, for an absolute path without links and the result of `read_mounts`.

    Does not touch the file system, which may hang.
    """
    path = path.rstrip("/") + "/"
    found, kind = "", ""
    for mount, its_kind in mounts:
        point = mount.rstrip("/") + "/"
        if path.startswith(point) and len(point) >= len(found):
            found, kind = point, its_kind
    return kind in NETWORK or kind.startswith("fuse")
