"""The benchmark of containers runs to its end, at its smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_runs import run_smallest
from engine_daemon import Engine


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_benchmark_of_containers_runs(engine: Engine, tmp_path: Path) -> None:
    figures = run_smallest("on_containers.py", tmp_path)
    assert {figure["who"] for figure in figures} >= {"cloudtrain", "two docker run"}
