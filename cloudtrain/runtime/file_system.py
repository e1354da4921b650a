"""The kind of file system that a folder is on."""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "lustre",
            "gpfs",
            "beegfs",
            "ceph",
            "glusterfs",
            "afs",
            "9p",
            "panfs",
        ),
        *("pvfs2", "orangefs", "wekafs", "efs", "virtiofs"),
    )
)
"""The types of network file systems; those of FUSE count too."""


def is_on_network(folder: str, table: Path = MOUNTS) -> bool:
    """Whether a folder is on a network file system, where memory cannot be shared well through a file.

    Args:
        table: the mounts, as in proc(5). Without it, as on other systems, nothing is on a network.
    """
    try:
        lines = table.read_bytes().splitlines()
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
