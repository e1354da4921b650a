"""The programs of `test_distributed_cases` with their tensors on GPUs, through NCCL. One GPU is enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpus
import pytest
from ranks import PROGRAMS, case_names, failures

from cloudtrain.contract import gpu_count

ON_CPUS = ("devices.py", "shared_memory.py")
"""Programs about the memory of the host, and with fabricated GPUs."""

CASES = [
    (program.name, count, case)
    for program in sorted(PROGRAMS.glob("[!_]*.py"))
    if program.name not in ON_CPUS
    for count in (1, 2, 3)
    for case in case_names(program.name)
]


@pytest.mark.gpu
@pytest.mark.parametrize(("program", "count", "case"), CASES)
def test_case_on_gpus(program: str, count: int, case: str) -> None:
    found = failures((program,), count, on_gpus=True)[program, case]
    assert not found, "\n".join(found)


@pytest.mark.skipif(bool(gpu_count()), reason="this machine has a GPU")
def test_cases_that_need_a_gpu_are_left_out_and_counted() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", __file__]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert f"{len(CASES)} tests not run: {gpus.WHY}" in done.stdout
    assert "skipped" not in done.stdout
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
