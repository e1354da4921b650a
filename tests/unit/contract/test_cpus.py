"""The processors of a host, in containers with a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudtrain.contract import cpu_count

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("", {}, ALL),
        ("0::/\n", {"cpu.max": "max 100000"}, ALL),
        ("0::/\n", {"cpu.max": "100000 100000"}, 1),
        ("0::/\n", {"cpu.max": "150000 100000"}, min(ALL, 2)),
        ("0::/\n", {"cpu.max": "10000 100000"}, 1),
        ("0::/\n", {"cpu.max": "6400000 100000"}, ALL),
        # the limit is that of the pod, above the container's group
        ("0::/pod/container\n", {"pod/container/cpu.max": "max 100000", "pod/cpu.max": "100000 100000"}, 1),
        # the path is that of the machine, and the group is mounted as the root
        ("0::/kubepods/pod1/container\n", {"cpu.max": "100000 100000"}, 1),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, 1),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"}, ALL),
        ("0::/\n", {"cpu.max": "damaged"}, ALL),
    ],
)
def test_a_limit_counts(tmp_path: Path, membership: str, files: dict[str, str], expected: int) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(membership)
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert cpu_count(tmp_path / "proc", tmp_path / "groups") == expected
