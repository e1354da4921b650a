"""Network file systems are recognised by the table of mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain._system.mounts import is_on_network

TABLE = """\
21 1 254:1 / / rw,relatime - ext4 /dev/vda rw
22 21 0:5 / /home rw - nfs4 server:/home rw
23 22 0:6 / /home/me/scratch rw shared:1 - xfs /dev/vdb rw
24 21 0:7 / /with\\040space rw - fuse.sshfs me@there: rw
25 21 0:8 / /hidden rw - nfs server:/old rw
26 21 0:9 / /hidden rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/var/tmp", False),
        ("/home", True),
        ("/home/me/jobs", True),
        ("/home/me/scratch/jobs", False),
        ("/home2", False),
        ("/with space/jobs", True),
        ("/hidden/jobs", False),
    ],
)
def test_the_innermost_mount_decides(folder: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(TABLE)
    assert is_on_network(folder, tmp_path / "mountinfo") is expected


def test_this_machine(tmp_path: Path) -> None:
    assert is_on_network("/proc") is False
    assert is_on_network("/", tmp_path / "no such table") is False
