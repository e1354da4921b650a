"""MXNet's collectives and training on real ranks, started by a real mpirun."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mxnet_ranks import run

pytestmark = pytest.mark.proof("MXNet 1.9.1", real="on CPUs")

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [1, 2])
def test_all_cases(mxnet_python: str, count: int) -> None:
    done = run([mxnet_python, str(PROGRAMS / "all_cases.py")], count)
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"rank (\d) of \d: all cases passed", done.stdout)) == [*map(str, range(count))]
