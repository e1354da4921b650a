"""The benchmarks that need only this machine run to their end, at their smallest size.

CI runs one that has changed, or a module that it imports; the soak runs all. tests/unit/test_benchmarks.py imports all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmark_runs import run_smallest, unsized
from pages import PASSED, lock_line, parametrize_pages

BENCHMARKS = {
    "start.py": ("imports first_line run", ["first line, one rank"]),
    "submit_phases.py": ("", ["runs the first line of the script"]),
    "regression.py": ("--base HEAD", ["cost of `from cloudtrain import Estimator`"]),
    "output_rate.py": ("", ["lines passed on"]),
    "log_metrics.py": ("", ["log() of one value"]),
    "growth.py": (
        "jobs looks ranks",
        [
            "`cloudtrain list` of 10,000 jobs, first look",
            "coordinator of 8 ranks: CPU for an operation",
        ],
    ),
    "negotiation.py": ("", ["negotiation, 128 ranks, one by one: CPU of rank 0"]),
    "collectives.py": ("", ["allreduce of 4 KB"]),
    "training.py": ("step hooks timeline memory", ["copies of the gradients, later steps"]),
    "checkpoint.py": ("", ["checkpoint of 1024 MiB: stall, second save, in plain copies"]),
    "checkpoint_faults.py": ("", ["checkpoints in s3: lost"]),
    "goodput.py": ("", ["goodput, a fault in 60 s"]),
    "sampling.py": ("share step data", ["sampling a host with 8 ranks"]),
    "dashboard.py": ("lists points", ["dashboard, 1 jobs: first page, first"]),
    "sweep.py": ("overhead jobs asha", ["sweep of 20 trials, random: time of a trial"]),
    "on_sagemaker.py": ("pack submit logs", ["submit a script that has changed: AWS calls"]),
}
"""The arguments of each, and figures that it prints."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "page", [f"benchmarks/{name}" for name in BENCHMARKS])


@pytest.mark.timeout(600)
def test_a_benchmark_runs(page: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    name = page.removeprefix("benchmarks/")
    arguments, printed = BENCHMARKS[name]
    figures = run_smallest(f"{name} {arguments}", tmp_path)
    assert {*map(unsized, printed)} <= {unsized(figure["what"]) for figure in figures}
    record_property(PASSED, lock_line(page))
