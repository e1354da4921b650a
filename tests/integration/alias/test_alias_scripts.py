"""Scripts written for Horovod run unchanged."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cloudtrain
from cloudtrain.contract import RankSlot

PROGRAMS = Path(__file__).parent / "programs"
ALIAS = Path(cloudtrain.__file__).parent / "alias"


def run(program: str, count: int, *arguments: str) -> str:
    """Run a script under torchrun, and return the ranks' output."""
    told = {name for slot in RankSlot.on_host(0, 1, 1) for name in slot.environment("", 0)}
    environ = {name: value for name, value in os.environ.items() if name not in told}
    path = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), str(ALIAS)]))
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
    done = subprocess.run(
        [sys.executable, *start, str(PROGRAMS / program), *arguments],
        env={**environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("count", [2, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="as it is"),
        pytest.param(["--use-adasum"], id="adasum"),
        pytest.param(["--fp16-allreduce"], id="fp16", marks=pytest.mark.soak),
        pytest.param(["--gradient-predivide-factor", "2"], id="predivide", marks=pytest.mark.soak),
    ],
)
def test_mnist(count: int, arguments: list[str]) -> None:
    printed = run("mnist.py", count, *arguments)
    rows = re.findall(r"^loss (\S+) accuracy (\d+)$", printed, re.MULTILINE)
    assert len(rows) == 3, "rank 0 alone prints"
    losses = [float(loss) for loss, _ in rows]
    assert losses[-1] < losses[0]
    assert int(rows[-1][1]) > 90, printed


@pytest.mark.parametrize("count", [1, 2])
def test_elastic(count: int) -> None:
    assert run("elastic_training.py", count) == f"epochs 3, samples of each rank {3 * 32 // count}\n"
