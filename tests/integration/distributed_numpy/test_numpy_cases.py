"""The same cases over Gloo and over MPI, on one, two and three real ranks."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path

import pytest
from numpy_ranks import PROGRAMS, WAYS, run_ranks

pytestmark = pytest.mark.proof("NumPy, JAX", real="Open MPI 4.1.4, MPICH 4.0.2")

CASES = [
    f"{program.stem}.{name}"
    for program in sorted(PROGRAMS.glob("[!_]*.py"))
    for name in re.findall(r"^def case_(\w+)\(", program.read_text(), re.MULTILINE)
]


@functools.cache
def failures(way: str, count: int) -> dict[str, list[str]]:
    """Return the failures of each case, one text per rank."""
    with tempfile.TemporaryDirectory() as folder:
        ended = run_ranks(way, count, "_all.py", folder, warm=count > 1)
        reports = [Path(folder, str(rank)) for rank in range(count)]
        errors = [json.loads(path.read_text()) if path.exists() else {} for path in reports]
    if all(set(found.values()) == {None} for found in errors):
        assert ended.returncode == 0, ended.output
    return {
        case: [
            f"rank {rank}: {error}"
            for rank, found in enumerate(errors)
            if (error := found.get(case, f"was not run\n{ended.output}"))
        ]
        for case in CASES
    }


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_case(way: str, count: int, case: str) -> None:
    found = failures(way, count)[case]
    assert not found, "\n".join(found)
