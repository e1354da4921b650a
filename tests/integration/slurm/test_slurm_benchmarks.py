"""The benchmarks on Slurm run to their end, at their smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_runs import run_smallest
from slurm_cluster import SlurmCluster


@pytest.mark.timeout(600)
def test_the_benchmarks_on_slurm_run(slurm: SlurmCluster, tmp_path: Path) -> None:
    figures = run_smallest("on_slurm.py", tmp_path)
    printed = {figure["what"] for figure in figures}
    assert "submit to the first line on an idle Slurm" in printed
    assert "ssh: a later submission, more than on the login node" in printed
    assert any(what.endswith(": most calls in 10 s") for what in printed)
