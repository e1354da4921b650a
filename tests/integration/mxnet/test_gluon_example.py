"""The Gluon example, on one rank and as a job with two ranks: the accuracies given in its README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from mxnet_ranks import environment, find_mpirun, run

EXAMPLE = Path(__file__).parents[3] / "examples" / "gluon_mxnet"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_one_and_two_ranks_reach_the_same_accuracy(mxnet_python: str, tmp_path: Path) -> None:
    alone = run([mxnet_python, str(EXAMPLE / "train.py")], 1, tmp_path)
    assert alone.returncode == 0, alone.stdout
    assert (tmp_path / "model" / "model.params").stat().st_size > 0
    find_mpirun()
    submit = [sys.executable, "-m", "cloudtrain", "submit", "train.yaml"]
    job = subprocess.run(
        [*submit, "--set", f"platform_options.python={mxnet_python}"],
        cwd=EXAMPLE,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert job.returncode == 0, job.stdout + job.stderr
    one, two = accuracy(alone.stdout, 1), accuracy(job.stdout, 2)
    assert min(one, two) >= 0.97
    assert abs(one - two) <= 0.01


def accuracy(output: str, ranks: int) -> float:
    """Return the final accuracy that rank 0 prints."""
    [found] = re.findall(rf"trained on {ranks} ranks  test:accuracy=([0-9.]+)", output)
    return float(found)
