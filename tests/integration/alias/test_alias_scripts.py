"""Scripts written for Horovod run unchanged."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest
import warm_python

import cloudtrain
from cloudtrain.contract import RankSlot
from cloudtrain.runtime.ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
ALIAS = Path(cloudtrain.__file__).parent / "alias"


def run(program: str, count: int, *arguments: str) -> str:
    """Run a script as ``count`` ranks, and return their output."""
    slots = RankSlot.on_host(0, 1, count)
    launcher = {name for slot in slots for name in slot.environment("", 0)}
    base = {name: value for name, value in os.environ.items() if name not in launcher}
    base["PYTHONPATH"] = os.pathsep.join(filter(None, [base.get("PYTHONPATH"), str(ALIAS)]))
    base["OMP_NUM_THREADS"] = "1"
    port = free_port()
    places = [slot.environment("127.0.0.1", port) for slot in slots] if count > 1 else [{}]
    command = [str(PROGRAMS / program), *arguments]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        ranks = [warm_python.start(command, {**base, **place}, output, errors) for place in places]
        try:
            codes = [rank.wait(200) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        output.seek(0)
        errors.seek(0)
        assert codes == [0] * count, errors.read()
        return output.read()


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
