"""The benchmarks of `docs/design/performance.md` run to their end, at their smallest size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize(
    "command", ["submit_phases.py --quick", "regression.py --base HEAD --quick", "growth.py --quick"]
)
def test_a_benchmark_runs(command: str, tmp_path: Path) -> None:
    name, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 4 and done.stdout.startswith("|")
