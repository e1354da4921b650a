"""The benchmarks on Slurm run to their end, at their smallest size.

CI runs them when this file has changed, or benchmarks/on_slurm.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmark_runs import run_smallest
from pages import PASSED, lock_line, parametrize_pages
from slurm_cluster import SlurmCluster


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "this_file", ["tests/integration/slurm/test_slurm_benchmarks.py"])


@pytest.mark.timeout(600)
def test_the_benchmarks_on_slurm_run(
    this_file: str, slurm: SlurmCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures = run_smallest("on_slurm.py", tmp_path)
    printed = {figure["what"] for figure in figures}
    assert "submit to the first line on an idle Slurm" in printed
    assert "ssh: a later submission, more than on the login node" in printed
    assert any(what.endswith(": most calls in 10 s") for what in printed)
    record_property(PASSED, lock_line(this_file))
