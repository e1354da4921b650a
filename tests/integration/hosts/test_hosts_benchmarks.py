"""The benchmarks on linked hosts run to their end, at their smallest size.

CI runs them when this file has changed, or one of benchmarks/on_mpi_hosts.py and benchmarks/training.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmark_runs import run_smallest
from host_network import Machine
from pages import PASSED, lock_line, parametrize_pages


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "this_file", ["tests/integration/hosts/test_hosts_benchmarks.py"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("on_mpi_hosts.py", "a trivial mpirun job on two linked hosts"),
        ("training.py network", "step of MLP, 5.2 M parameters, batch 64, 10 Gbit/s"),
    ],
)
def test_a_benchmark_on_hosts_runs(
    this_file: str,
    command: str,
    printed: str,
    two_hosts: list[Machine],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    assert printed in {figure["what"] for figure in run_smallest(command, tmp_path)}
    record_property(PASSED, lock_line(this_file))
