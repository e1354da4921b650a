"""On which kind of file system a folder is."""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_ON_SERVERS = ("nfs", "nfs4", "cifs", "smb3", "afs", "9p", "efs", "virtiofs")
_ON_CLUSTERS = ("lustre", "gpfs", "beegfs", "ceph", "glusterfs", "panfs", "pvfs2", "orangefs", "wekafs")
NETWORK = frozenset((*_ON_SERVERS, *_ON_CLUSTERS))
"""The types of network file systems; those of FUSE count too."""


def is_on_network(folder: str, table: Path | None = None) -> bool:
    """Whether a folder is on a network file system, where processes cannot share memory well through a file.

    Args:
        table: the mounts, as in proc(5): by default, those of this process. Without it, as on other systems, nothing is
            on a network.
    """
    try:
        lines = (table or MOUNTS).read_bytes().splitlines()
    except OSError:
        return False
    folder = os.path.realpath(folder).rstrip("/") + "/"
    found, kind = "", ""
    for line in lines:
        fields = line.split(b" ")
        point = os.fsdecode(fields[4].decode("unicode_escape").encode("latin-1")).rstrip("/") + "/"
        if folder.startswith(point) and len(point) >= len(found):
            found, kind = point, fields[fields.index(b"-") + 1].decode()
    return kind in NETWORK or kind.startswith("fuse")
