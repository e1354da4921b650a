"""The benchmarks on linked hosts run to their end, at their smallest size."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_runs import run_smallest
from host_network import Machine


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("on_mpi_hosts.py", "a trivial mpirun job on two linked hosts"),
        ("training.py network", "step of MLP, 5.2 M parameters, batch 64, 10 Gbit/s"),
    ],
)
def test_a_benchmark_on_hosts_runs(
    command: str, printed: str, two_hosts: list[Machine], tmp_path: Path
) -> None:
    assert printed in {figure["what"] for figure in run_smallest(command, tmp_path)}
