"""``cloudtrain top`` of jobs on a real Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import CLOUDTRAIN
from slurm_cluster import SlurmCluster
from slurm_jobs import submit, wait_for_end, wait_for_line
from terminal import terminal

SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(600)"


def test_a_job_waits_then_runs(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    first = submit(tmp_path, SLEEPS, "first", stop_grace=1, platform_options={"exclusive": True})
    wait_for_line(first, "ready", 2)
    second = submit(tmp_path, SLEEPS, "second", stop_grace=1, platform_options={"exclusive": True})
    with terminal([CLOUDTRAIN, "top"], os.environ, columns=160) as screen:
        screen.wait_for("▸ second", "Pending", "  first", "train")
        screen.press("\r")
        screen.wait_for("second  on slurm  Pending", "waits: ")
        first.stop()
        wait_for_end(first)
        text = screen.wait_for("second  on slurm  Running  train", "slurm: Running on", "RANKS", seconds=120)
        hosts = [line.split() for line in text.splitlines() if line.startswith("127.")]
        assert [host[:3] for host in hosts if len(host) > 2] == [
            [name, str(rank), "train"] for rank, name in enumerate(slurm.node_names)
        ]
        screen.press("q")
        assert screen.wait_for_end() == 0
    second.stop()
    wait_for_end(second)
