"""The stacks of ranks on the nodes of a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster
from slurm_jobs import submit, wait_for_end, wait_for_line

WAITS = """
import os, time
def load():
    time.sleep(600)
def train():
    time.sleep(600)
print("ready", flush=True)
load() if os.environ["RANK"] == "1" else train()
"""


def test_two_nodes(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    job = submit(tmp_path, WAITS, "stacks", stop_grace=1)
    wait_for_line(job, "ready", 2)
    for native in (False, True, False):
        dump = job.stacks(native=native, timeout=90)
        assert [(group.ranks, group.where.partition(" ")[2]) for group in dump.groups] == [
            ("0", "at train.py:6"),
            ("1", "at train.py:4"),
        ]
        assert all(("nanosleep" in group.stack) == native for group in dump.groups)
    assert dump.groups[1].hosts == (slurm.node_names[1],)
    job.stop()
    wait_for_end(job)
