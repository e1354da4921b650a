"""The number of processes that the out-of-memory killer has ended, in every layout of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.runtime.diagnose.machine_faults import memory_kill_count

V1 = "5:devices:/job\n4:memory,blkio:/slurm/job_7/task_0\n0::/\n"
V2 = "0::/slurm/job_7/task_0\n"


@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        (
            V1,
            {"group/memory/slurm/job_7/task_0/memory.oom_control": 2, "group/memory/memory.oom_control": 9},
            2,
        ),
        (V2, {"group/slurm/job_7/task_0/memory.events": 3, "proc/vmstat": 9}, 3),
        (V1, {"group/memory/memory.oom_control": 4}, 4),
        ("0::/\n", {"group/memory.events": 5, "proc/vmstat": 9}, 5),
        ("0::/\n", {"proc/vmstat": 6}, 6),
        ("", {"proc/vmstat": 7}, 7),
        (None, {}, 0),
    ],
    ids=[
        "version 1",
        "version 2",
        "container 1",
        "container 2",
        "root of version 2",
        "no groups",
        "no /proc",
    ],
)
def test_the_kills_of_the_own_group_count(
    tmp_path: Path, membership: str | None, files: dict[str, int], count: int
) -> None:
    if membership is not None:
        files = {**files, "proc/self/cgroup": -1}
    for name, kills in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(membership or "" if kills < 0 else f"under_oom 0\noom 1\noom_kill {kills}\nlow 0\n")
    assert memory_kill_count(tmp_path / "proc", tmp_path / "group") == count
