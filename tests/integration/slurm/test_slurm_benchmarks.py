"""The benchmarks on Slurm run to their end, at their smallest size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("name", ["slurm_submit", "slurm_ssh", "slurm_watch"])
def test_a_benchmark_runs(name: str, slurm: SlurmCluster, tmp_path: Path) -> None:
    environ = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SLURM_CONF")}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick"],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("|")
